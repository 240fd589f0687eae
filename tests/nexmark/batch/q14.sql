WITH priced AS (
  SELECT *, CAST(price AS DECIMAL(18, 0)) * CAST('0.908' AS DECIMAL(4, 3)) AS euros, hour(dateTime) AS h FROM bid
)
SELECT auction, bidder, euros,
  CASE WHEN h BETWEEN 8 AND 18 THEN 'dayTime' WHEN h IN (7, 19) THEN 'otherTime' ELSE 'nightTime' END,
  dateTime, extra, len(string_split(extra, 'c')) - 1
FROM priced
WHERE euros > 1000000 AND euros < 50000000
