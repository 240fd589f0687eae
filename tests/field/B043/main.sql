-- both ends of the interval, inclusive and exclusive
CREATE TABLE o (
  id INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE
) WITH ('connector'='filesystem', 'path'='o.json', 'format'='json');
CREATE TABLE p (
  oid INT, amt INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE
) WITH ('connector'='filesystem', 'path'='p.json', 'format'='json');
SELECT o.id, o.ts, p.amt FROM o JOIN p ON o.id = p.oid
  AND p.ts >= o.ts - INTERVAL '10' SECOND AND p.ts <= o.ts + INTERVAL '10' SECOND;
SELECT o.id, o.ts, p.amt FROM o JOIN p ON o.id = p.oid
  AND p.ts > o.ts - INTERVAL '10' SECOND AND p.ts < o.ts + INTERVAL '10' SECOND;
SELECT o.id, o.ts, p.amt FROM o JOIN p ON o.id = p.oid
  AND o.ts BETWEEN p.ts - INTERVAL '20' SECOND AND p.ts - INTERVAL '5' SECOND;
