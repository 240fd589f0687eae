CREATE TABLE l (
  k STRING, v BIGINT
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/l.ndjson', 'format' = 'json');
CREATE TABLE r (
  k STRING, w BIGINT
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/r.ndjson', 'format' = 'json');

SELECT k, v, (SELECT COUNT(*) FROM r WHERE r.k = l.k) AS c, (SELECT SUM(w) FROM r WHERE r.k = l.k) AS s FROM l;
