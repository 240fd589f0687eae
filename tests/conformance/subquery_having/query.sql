CREATE TABLE l (
  k STRING, v BIGINT
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/l.ndjson', 'format' = 'json');
CREATE TABLE r (
  k STRING, w BIGINT
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/r.ndjson', 'format' = 'json');

SELECT k, SUM(v) AS s FROM l GROUP BY k HAVING SUM(v) > (SELECT MIN(v) FROM l);
