-- Output that cannot be written
CREATE TABLE t (
  v INT,
  ts TIMESTAMP(3)
) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json');
CREATE TABLE r (x INT) WITH ('connector'='filesystem', 'path'='out', 'format'='csv');
INSERT INTO r SELECT 100 / (5000 - v) FROM t;
