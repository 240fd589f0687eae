-- Departures of each carrier in the last two hours, every half hour.
-- A row that is late for some of its four windows still counts in the others ("partly late").

CREATE TABLE flights (
  carrier    STRING,
  sched_dep  TIMESTAMP(3),
  dep_delay  INT,
  WATERMARK FOR sched_dep AS sched_dep - INTERVAL '30' MINUTE
) WITH (
  'connector' = 'filesystem',
  'path' = '${DIR}/flights_2013_01.csv',
  'format' = 'csv'
);

SELECT
  window_start,
  window_end,
  carrier,
  COUNT(*) AS departures,
  SUM(dep_delay) AS delay_min
FROM TABLE(HOP(TABLE flights, DESCRIPTOR(sched_dep), INTERVAL '30' MINUTE, INTERVAL '2' HOUR))
GROUP BY window_start, window_end, carrier;
