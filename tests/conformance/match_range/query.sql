CREATE TABLE t (
  ts TIMESTAMP(3), k STRING, p BIGINT,
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/t.ndjson', 'format' = 'json');

SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts
  MEASURES FIRST(A.p) AS a, COUNT(A.p) AS n, C.p AS c
  ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW
  PATTERN (A{2,3} C)
  DEFINE A AS A.p < 4, C AS C.p >= 4) AS m;
