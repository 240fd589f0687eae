SET 'state.memory-limit' = '1 MB';
CREATE TABLE t (
  k BIGINT, v INT,
  ts TIMESTAMP(3)
) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json');
SELECT k, COUNT(*) AS c FROM t GROUP BY k;
-- The session lives on.
SELECT COUNT(*) AS n, MIN(k) AS low, MAX(k) AS high FROM t;
