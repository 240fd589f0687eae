-- EXISTS / NOT EXISTS inside a window
CREATE TABLE o (
  id INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH ('connector'='filesystem', 'path'='o.json', 'format'='json');
CREATE TABLE p (
  oid INT, amt INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH ('connector'='filesystem', 'path'='p.json', 'format'='json');
SELECT id FROM (SELECT * FROM TABLE(TUMBLE(TABLE o, DESCRIPTOR(ts), INTERVAL '5' SECOND))) L
WHERE EXISTS (SELECT * FROM (SELECT * FROM TABLE(TUMBLE(TABLE p, DESCRIPTOR(ts), INTERVAL '5' SECOND))) R
  WHERE L.id = R.oid AND L.window_start = R.window_start AND L.window_end = R.window_end);
SELECT id FROM (SELECT * FROM TABLE(TUMBLE(TABLE o, DESCRIPTOR(ts), INTERVAL '5' SECOND))) L
WHERE NOT EXISTS (SELECT * FROM (SELECT * FROM TABLE(TUMBLE(TABLE p, DESCRIPTOR(ts), INTERVAL '5' SECOND))) R
  WHERE L.id = R.oid AND L.window_start = R.window_start AND L.window_end = R.window_end);
