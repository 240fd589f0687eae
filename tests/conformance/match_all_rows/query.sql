CREATE TABLE t (
  ts TIMESTAMP(3), k STRING, p BIGINT,
  WATERMARK FOR ts AS ts - INTERVAL '2' SECOND
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/t.ndjson', 'format' = 'json');

SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts
  MEASURES FIRST(p) AS a, LAST(p) AS b, p AS c, COUNT(p) AS n, SUM(p) AS s, COUNT(*) AS cs
  ONE ROW PER MATCH
  PATTERN (A B+ C)
  DEFINE B AS p < LAST(p, 1), C AS p > LAST(p,1)) AS m;
