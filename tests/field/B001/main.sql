-- A WHERE clause must not hide rows from the watermark
CREATE TABLE t (
  k STRING, v INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts
) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json');
SELECT window_start, window_end, COUNT(*) AS c, SUM(v) AS s
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
WHERE k = 'a'
GROUP BY window_start, window_end
LATE ROWS INTO late_t;
SELECT k, v, ts, late_reason, late_window_end, late_watermark, late_by FROM late_t;
