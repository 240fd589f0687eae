-- An input without any row neither blocks nor floods
CREATE TABLE a (
  v INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH ('connector'='filesystem', 'path'='a.json', 'format'='json');
CREATE TABLE b (
  v INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH ('connector'='filesystem', 'path'='empty.json', 'format'='json');
CREATE TEMPORARY VIEW t AS SELECT v, ts FROM a UNION ALL SELECT v, ts FROM b;
SELECT window_start, window_end, COUNT(*) AS c, SUM(v) AS s
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;
