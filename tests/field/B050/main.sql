-- NULLs, empty FILTER, NULL as a group
CREATE TABLE t (
  k STRING, v INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json');
SELECT k, COUNT(*) AS n, COUNT(v) AS nv, SUM(v) AS s, AVG(v) AS a, MIN(v) AS mi,
  COUNT(DISTINCT v) AS d, COUNT(*) FILTER (WHERE v > 100) AS f, SUM(v) FILTER (WHERE v > 100) AS sf
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, k;
