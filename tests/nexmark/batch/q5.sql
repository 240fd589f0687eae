-- A bid is in the five windows of ten seconds that begin at an even second at or before it.
WITH placed AS (
  SELECT auction, (epoch_ms(dateTime) // 2000 - back.i) * 2000 AS starts
  FROM bid, (SELECT unnest(range(5)) AS i) back
), counted AS (
  SELECT starts, auction, count(*) AS num FROM placed GROUP BY starts, auction
)
SELECT starts, auction, num
FROM counted
QUALIFY num = max(num) OVER (PARTITION BY starts)
