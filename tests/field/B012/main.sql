-- Windows before 1970
CREATE TABLE t (
  v INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts
) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json');
SELECT window_start, window_end, SUM(v) AS s
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;
SELECT window_start, window_end, SUM(v) AS s
FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '30' SECOND, INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;
