CREATE TABLE t (
  ts TIMESTAMP(3), k STRING, p BIGINT,
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/t.ndjson', 'format' = 'json');

SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts
  MEASURES FIRST(A.p) AS a, B.p AS b
  ONE ROW PER MATCH
  PATTERN (A B)
  DEFINE B AS B.p > PREV(B.p)) AS m;
