CREATE TABLE l (
  k STRING, v BIGINT
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/l.ndjson', 'format' = 'json');
CREATE TABLE r (
  k STRING, w BIGINT
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/r.ndjson', 'format' = 'json');

SELECT k, v FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = l.k AND r.w > l.v);
