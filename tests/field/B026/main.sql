-- HOP: late for one window, on time for the next
CREATE TABLE t (
  v INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts
) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json');
SELECT window_start, window_end, COUNT(*) AS c, SUM(v) AS s
FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '30' SECOND, INTERVAL '60' SECOND))
GROUP BY window_start, window_end
LATE ROWS INTO late_t;
SELECT v, ts, late_reason, late_window_end, late_watermark, late_by FROM late_t;
