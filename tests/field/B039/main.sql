-- Window on top of a window
CREATE TABLE t (
  v INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts
) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json');
CREATE TEMPORARY VIEW m1 AS
SELECT window_time AS rt, SUM(v) AS s
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, window_time;
SELECT window_start, window_end, COUNT(*) AS c, SUM(s) AS s, MAX(s) AS m
FROM TABLE(TUMBLE(TABLE m1, DESCRIPTOR(rt), INTERVAL '5' MINUTE))
GROUP BY window_start, window_end;
