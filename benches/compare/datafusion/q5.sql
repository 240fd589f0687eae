WITH placed AS (
  SELECT auction, (ms(dateTime) / 2000 - back.i) * 2000 AS starts
  FROM bid CROSS JOIN (VALUES (0), (1), (2), (3), (4)) AS back(i)
), counted AS (
  SELECT starts, auction, count(*) AS num FROM placed GROUP BY starts, auction
), most AS (
  SELECT starts, max(num) AS num FROM counted GROUP BY starts
)
SELECT counted.starts, counted.auction, counted.num
FROM counted JOIN most ON counted.starts = most.starts AND counted.num = most.num
