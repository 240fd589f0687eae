-- Mistyped options
CREATE TABLE t0 (v INT, ts TIMESTAMP(3)) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json', 'json.ingore-parse-errors'='true');
SELECT v FROM t0;
CREATE TABLE t1 (v INT, ts TIMESTAMP(3)) WITH ('connector'='filesytem', 'path'='in.json', 'format'='json');
SELECT v FROM t1;
CREATE TABLE t2 (v INT, ts TIMESTAMP(3)) WITH ('connector'='filesystem', 'format'='json');
SELECT v FROM t2;
CREATE TABLE t3 (v INT, ts TIMESTAMP(3)) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json', 'json.ignore-parse-errors'='yes please');
SELECT v FROM t3;
