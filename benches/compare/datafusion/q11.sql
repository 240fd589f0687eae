WITH times AS (
  SELECT bidder, ms(dateTime) AS ms FROM bid
), begun AS (
  SELECT bidder, ms, ms - lag(ms) OVER (PARTITION BY bidder ORDER BY ms) AS gap FROM times
), numbered AS (
  SELECT bidder, ms,
    sum(CASE WHEN gap > 10000 THEN 1 ELSE 0 END)
      OVER (PARTITION BY bidder ORDER BY ms ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS number
  FROM begun
)
SELECT bidder, count(*), min(ms), max(ms) + 10000 FROM numbered GROUP BY bidder, number
