-- DECIMAL: overflow and result type
CREATE TABLE t (
  d DECIMAL(38,3), m DECIMAL(20,2),
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json');
SELECT d, m FROM t;
SELECT SUM(m) AS sm, AVG(m) AS am, COUNT(d) AS c FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;
SELECT SUM(d) AS sd FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;
