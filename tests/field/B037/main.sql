-- Slide that does not divide the size; arguments swapped
CREATE TABLE t (
  v INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts
) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json');
SELECT window_start, window_end, SUM(v) AS s
FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '15' MINUTE, INTERVAL '20' MINUTE))
GROUP BY window_start, window_end;
SELECT window_start, window_end, SUM(v) AS s
FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '20' MINUTE, INTERVAL '5' MINUTE))
GROUP BY window_start, window_end;
SELECT window_start, window_end, SUM(v) AS s
FROM TABLE(CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '7' MINUTE, INTERVAL '20' MINUTE))
GROUP BY window_start, window_end;
