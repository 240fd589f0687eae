CREATE TABLE t (
  ts TIMESTAMP(3), k STRING, p BIGINT,
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/t.ndjson', 'format' = 'json');

SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts
  MEASURES FIRST(A.p) AS a, LAST(A.p) AS la, COUNT(A.p) AS n, SUM(A.p) AS s, MIN(A.p) AS mi, MAX(A.p) AS ma, B.p AS b, MATCH_ROWTIME() AS rt
  ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A+ B)
  DEFINE A AS SUM(A.p) < 9, B AS B.p > 3) AS m;
