CREATE TABLE t (
  ts TIMESTAMP(3), k STRING, p BIGINT,
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/t.ndjson', 'format' = 'json');

SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts
  MEASURES FIRST(A.p) AS a, LAST(B.p) AS b, LAST(C.p) AS c
  ONE ROW PER MATCH AFTER MATCH SKIP TO LAST B
  PATTERN (A B+ C)
  DEFINE B AS B.p < 11, C AS C.p >= 11) AS m;
