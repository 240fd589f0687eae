-- Query 14, calculation: bids of some prices, by the time of day, and how often a letter is in their text.
-- The original counts by a function of its own, written in Java; the cast is that of query 1.

SELECT
  auction,
  bidder,
  CAST(0.908 * price AS DECIMAL(23, 3)) AS price,
  CASE
    WHEN HOUR(`dateTime`) >= 8 AND HOUR(`dateTime`) <= 18 THEN 'dayTime'
    WHEN HOUR(`dateTime`) <= 6 OR HOUR(`dateTime`) >= 20 THEN 'nightTime'
    ELSE 'otherTime'
  END AS bidTimeType,
  `dateTime`,
  extra,
  CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;
