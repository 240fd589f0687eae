CREATE TABLE t (
  ts TIMESTAMP(3), k STRING, p BIGINT,
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/t.ndjson', 'format' = 'json');

SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts
  MEASURES FIRST(B.p, 1) AS f1, FIRST(B.p, 5) AS f5, LAST(B.p, 1) AS l1
  PATTERN (A B+ C)
  DEFINE A AS A.p = 1, B AS B.p > 1 AND (B.p > LAST(B.p, 1) OR LAST(B.p, 1) IS NULL), C AS C.p < FIRST(B.p)) AS m;
