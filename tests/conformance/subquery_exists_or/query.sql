CREATE TABLE l (
  k STRING, v BIGINT
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/l.ndjson', 'format' = 'json');
CREATE TABLE r (
  k STRING, w BIGINT
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/r.ndjson', 'format' = 'json');

SELECT k, v FROM l WHERE v = 3 OR EXISTS (SELECT 1 FROM r WHERE r.k = l.k AND w > 5);
