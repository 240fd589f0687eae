-- Empty, quoted empty, NULL – and the way back
CREATE TABLE t (
  k STRING, v INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json');
CREATE TABLE oj (k STRING, v INT) WITH ('connector'='filesystem', 'path'='outj', 'format'='json');
INSERT INTO oj SELECT k, v FROM t;
SELECT k, v, k IS NULL AS n FROM oj;
CREATE TABLE oc (k STRING, v INT) WITH ('connector'='filesystem', 'path'='outc', 'format'='csv', 'csv.null-literal'='\N');
INSERT INTO oc SELECT k, v FROM t;
SELECT k, v, k IS NULL AS n FROM oc;
