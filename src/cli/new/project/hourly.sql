-- Clicks per page and hour. From any folder:
--   tidegate run hourly.sql
--   tidegate run hourly.sql -f csv > hourly.csv
CREATE TABLE clicks (
  page STRING,
  user_id BIGINT,
  ts TIMESTAMP(3),
  -- ts is the time of a row. A row that is more than five minutes older than the latest one may be late.
  WATERMARK FOR ts AS ts - INTERVAL '5' MINUTE
) WITH (
  'connector' = 'filesystem',
  'path' = '${DIR}/data/clicks.csv',
  'format' = 'csv',
  'csv.header' = 'true'
);

CREATE VIEW hourly AS
SELECT window_start, page, COUNT(*) AS clicks, COUNT(DISTINCT user_id) AS users
FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR))
GROUP BY window_start, window_end, page;

-- Each hour is given once, when the watermark has passed its end. What comes later is counted as late.
SELECT * FROM hourly;
