-- Bids of each auction in ten seconds: count, sum and mean of the price.

SELECT auction, window_start AS starttime, COUNT(*) AS bids, SUM(price) AS total, AVG(CAST(price AS DOUBLE)) AS mean
FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
GROUP BY auction, window_start, window_end;
