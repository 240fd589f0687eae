-- The windows of a batch fit, 200 do not; nor could they be put away.
SET 'state.memory-limit' = '2 MB';
SET 'state.spill-dir' = '/dev/null';
CREATE TABLE t (
  k BIGINT, v INT,
  ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json');
SELECT window_start, window_end, k, COUNT(*) AS c, MAX(v) FILTER (WHERE v > 5) AS m
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, k
HAVING COUNT(*) > 1;
