-- Back-pressure is not idleness. A tenth of the rows of the report, and each row of the result is pulled through
-- a query: time in which nobody takes rows must not count as silence.
CREATE TABLE a (
  v INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts
) WITH ('connector'='filesystem', 'path'='a.json', 'format'='json', 'scan.watermark.idle-timeout'='500 ms');
CREATE TABLE b (
  v INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts
) WITH ('connector'='filesystem', 'path'='b.json', 'format'='json', 'scan.watermark.idle-timeout'='500 ms');
CREATE TEMPORARY VIEW t AS SELECT v, ts FROM a UNION ALL SELECT v, ts FROM b;
CREATE TABLE slow (s TIMESTAMP(3), e TIMESTAMP(3), c BIGINT, v BIGINT)
  WITH ('connector'='filesystem', 'path'='slow.json', 'format'='json');
INSERT INTO slow SELECT window_start, window_end, COUNT(*) AS c, SUM(v) AS s
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;
SELECT COUNT(*) AS windows, SUM(c) AS c, SUM(v) AS v FROM slow;
SELECT window_start, window_end, COUNT(*) AS c, SUM(v) AS s
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;
