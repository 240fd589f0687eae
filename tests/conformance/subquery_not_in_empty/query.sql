CREATE TABLE l (
  k STRING, v BIGINT
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/l.ndjson', 'format' = 'json');
CREATE TABLE r (
  k STRING, w BIGINT
) WITH ('connector' = 'filesystem', 'path' = '${DATA}/r.ndjson', 'format' = 'json');

SELECT k, v FROM l WHERE k NOT IN (SELECT k FROM r WHERE w > 100);
