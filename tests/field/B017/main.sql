-- Local-day windows east of Greenwich lose rows
SET 'table.local-time-zone' = 'Asia/Shanghai';
CREATE TABLE t (
  v INT, e BIGINT, ts AS TO_TIMESTAMP_LTZ(e, 3),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json');
SELECT window_start, window_end, COUNT(*) AS c, SUM(v) AS s
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY))
GROUP BY window_start, window_end;
