-- Wrong time column, no watermark, ambiguous names
CREATE TABLE t (
  v INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts
) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json');
CREATE TABLE u (v INT, ts TIMESTAMP(3)) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json');
SELECT window_start, window_end, SUM(v) AS s
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(v), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;
SELECT window_start, window_end, SUM(v) AS s
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(nope), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;
SELECT window_start, window_end, SUM(v) AS s
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), 60000))
GROUP BY window_start, window_end;
SELECT window_start, window_end, SUM(v) AS s
FROM TABLE(TUMBLE(TABLE u, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;
SELECT window_start, window_end, SUM(v) AS s
FROM TABLE(TUMBLE(TABLE missing, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;
SELECT window_start FROM (SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))) a JOIN (SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))) b
  ON a.window_start = b.window_start AND a.window_end = b.window_end;
CREATE TABLE w (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS v) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json');
