-- The last rows of a bounded job
CREATE TABLE t (
  v INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json');
CREATE TABLE r (v INT, ts TIMESTAMP(3)) WITH ('connector'='filesystem', 'path'='out', 'format'='json');
INSERT INTO r SELECT v, ts FROM t;
SELECT v FROM r;
