-- Characters and line ends cut by a read buffer
CREATE TABLE t (
  n INT, s STRING, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector'='filesystem', 'path'='in.csv', 'format'='csv');
SELECT n, CHAR_LENGTH(s) AS len, COUNT(*) AS c FROM t WHERE CHAR_LENGTH(s) <> n GROUP BY n, CHAR_LENGTH(s);
SELECT COUNT(*) AS c FROM t;
