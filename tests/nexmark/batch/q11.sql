-- A session begins with a bid more than ten seconds after the one before it.
WITH times AS (
  SELECT bidder, epoch_ms(dateTime) AS ms FROM bid
), begun AS (
  SELECT bidder, ms, ms - lag(ms) OVER (PARTITION BY bidder ORDER BY ms) AS gap FROM times
), numbered AS (
  SELECT bidder, ms,
    count(*) FILTER (WHERE gap > 10000) OVER (PARTITION BY bidder ORDER BY ms ROWS UNBOUNDED PRECEDING) AS number
  FROM begun
)
SELECT bidder, count(*), min(ms), max(ms) + 10000 FROM numbered GROUP BY bidder, number
