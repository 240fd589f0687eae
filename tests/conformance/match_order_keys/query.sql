CREATE TABLE t (
  ts TIMESTAMP(3), k STRING, p BIGINT,
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/t.ndjson', 'format' = 'json');

SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts, p
  MEASURES FIRST(A.p) AS a, LAST(B.p) AS b, LAST(B.ts) AS bt
  ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW
  PATTERN (A B)
  DEFINE B AS B.p > A.p) AS m;
