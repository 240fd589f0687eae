-- Parquet: units and far dates
CREATE TABLE pms (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector'='filesystem', 'path'='ms.parquet', 'format'='parquet');
SELECT v, ts FROM pms;
CREATE TABLE pus (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector'='filesystem', 'path'='us.parquet', 'format'='parquet');
SELECT v, ts FROM pus;
CREATE TABLE pns (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector'='filesystem', 'path'='ns.parquet', 'format'='parquet');
SELECT v, ts FROM pns;
CREATE TABLE pint96 (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector'='filesystem', 'path'='int96.parquet', 'format'='parquet');
SELECT v, ts FROM pint96;
CREATE TABLE groups (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector'='filesystem', 'path'='groups.parquet', 'format'='parquet');
SELECT v, ts FROM groups;
CREATE TABLE empty (v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector'='filesystem', 'path'='empty.parquet', 'format'='parquet');
SELECT v, ts FROM empty;
