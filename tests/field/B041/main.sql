-- LEFT interval join: the NULL row exactly once, and only if nothing matched
CREATE TABLE o (
  id INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH ('connector'='filesystem', 'path'='o.json', 'format'='json');
CREATE TABLE p (
  oid INT, amt INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '10' SECOND
) WITH ('connector'='filesystem', 'path'='p.json', 'format'='json');
SELECT o.id, o.ts, p.oid, p.amt
FROM o LEFT JOIN p
  ON o.id = p.oid AND p.ts BETWEEN o.ts AND o.ts + INTERVAL '5' SECOND;
