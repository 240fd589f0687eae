CREATE TABLE t (
  ts TIMESTAMP(3), k STRING, p BIGINT,
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/t.ndjson', 'format' = 'json');

SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts
  MEASURES A.p AS a, B.p AS b, LAST(C.p) AS c
  ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW
  PATTERN (A B C)
  DEFINE B AS B.p > A.p, C AS C.p > B.p) AS m;
