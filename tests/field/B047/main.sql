-- NaN and signed zero
CREATE TABLE t (
  k STRING, v DOUBLE, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector'='filesystem', 'path'='in.csv', 'format'='csv');
SELECT k, MIN(v) AS mi, MAX(v) AS ma, COUNT(DISTINCT v) AS d, COUNT(*) AS c
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, k;
