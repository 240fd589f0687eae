-- Keywords as names
CREATE TABLE `select` (
  `timestamp` TIMESTAMP(3), `value` INT, `end` STRING, `order` INT,
  WATERMARK FOR `timestamp` AS `timestamp` - INTERVAL '1' SECOND
) WITH ('connector'='filesystem', 'path'='in.json', 'format'='json');
SELECT window_start, SUM(`value`) AS `sum`, MAX(`order`) AS `max`
FROM TABLE(TUMBLE(TABLE `select`, DESCRIPTOR(`timestamp`), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;
