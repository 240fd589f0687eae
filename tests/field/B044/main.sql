-- the version that was valid at the time of a row
CREATE TABLE r (
  cur STRING, rate INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '2' MINUTE,
  PRIMARY KEY (cur) NOT ENFORCED
) WITH ('connector'='filesystem', 'path'='r.json', 'format'='json');
CREATE TABLE o (
  id INT, cur STRING, amt INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE
) WITH ('connector'='filesystem', 'path'='o.json', 'format'='json');
SELECT o.id, o.cur, r.rate, o.amt * r.rate AS total
FROM o LEFT JOIN r FOR SYSTEM_TIME AS OF o.ts ON o.cur = r.cur;
