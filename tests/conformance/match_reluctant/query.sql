CREATE TABLE t (
  ts TIMESTAMP(3), k STRING, p BIGINT,
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/t.ndjson', 'format' = 'json');

SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts
  MEASURES FIRST(A.p) AS a, COUNT(B.p) AS n, C.p AS c
  ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B*? C)
  DEFINE A AS A.p = 1, C AS C.p > 2) AS m;
