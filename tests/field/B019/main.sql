-- Window offset, also negative
CREATE TABLE t (
  v INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json');
SELECT window_start, window_end, SUM(v) AS s
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY, INTERVAL '8' HOUR))
GROUP BY window_start, window_end;
SELECT window_start, window_end, SUM(v) AS s
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY, INTERVAL '-16' HOUR))
GROUP BY window_start, window_end;
SELECT window_start, window_end, SUM(v) AS s
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY, INTERVAL '2' DAY))
GROUP BY window_start, window_end;
