CREATE TABLE t (
  ts TIMESTAMP(3), k STRING, p BIGINT,
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/t.ndjson', 'format' = 'json');

SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts
  MEASURES FIRST(A.p) AS a, COUNT(B.p) AS n, C.p AS c
  PATTERN (A B{2,} C)
  DEFINE A AS A.p = 1, B AS B.p > LAST(B.p, 1) OR LAST(B.p, 1) IS NULL, C AS C.p < LAST(B.p)) AS m;
