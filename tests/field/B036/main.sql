-- Each row in size/slide windows, also for fractions of a second
CREATE TABLE t (
  v INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts
) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json');
SELECT v, window_start, window_end
FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND));
SELECT v, window_start, window_end
FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '0.7' SECOND, INTERVAL '1.4' SECOND));
