-- Window size zero or negative
CREATE TABLE t (
  v INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts
) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json');
SELECT window_start, window_end, SUM(v) AS s
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '0' SECOND))
GROUP BY window_start, window_end;
SELECT window_start, window_end, SUM(v) AS s
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '-5' SECOND))
GROUP BY window_start, window_end;
SELECT window_start, window_end, SUM(v) AS s
FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '0' MINUTE, INTERVAL '15' MINUTE))
GROUP BY window_start, window_end;
SELECT window_start, window_end, SUM(v) AS s
FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '-5' MINUTE, INTERVAL '-15' MINUTE))
GROUP BY window_start, window_end;
SELECT window_start, window_end, SUM(v) AS s
FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '0' MINUTE, INTERVAL '15' MINUTE))
GROUP BY window_start, window_end;
SELECT window_start, window_end, SUM(v) AS s
FROM TABLE(SESSION(TABLE t, DESCRIPTOR(ts), INTERVAL '0' SECOND))
GROUP BY window_start, window_end;
