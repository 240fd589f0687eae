-- Included by late.test; ${this} is a remark.
CREATE TABLE flights (origin STRING, dep TIMESTAMP(3), file STRING, WATERMARK FOR dep AS dep)
WITH ('connector' = 'filesystem', 'path' = '${DIR}/flights.csv', 'format' = 'csv');
SELECT origin, COUNT(*) AS departures, REGEXP_REPLACE('${DIR}', '^.*/tests/', 'tests/') AS folder
FROM TABLE(TUMBLE(TABLE flights, DESCRIPTOR(dep), ${hour}))
GROUP BY window_start, window_end, origin;
