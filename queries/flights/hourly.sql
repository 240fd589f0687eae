-- Departures from the three New York airports in January 2013, by hour and airport.
-- Rows arrive when a plane has left; a flight that is more than an hour behind schedule may be late
-- for its window. The summary on stderr counts those rows.

CREATE TABLE flights (
  flight     STRING,
  carrier    STRING,
  origin     STRING,
  sched_dep  TIMESTAMP(3),
  dep_delay  INT,
  WATERMARK FOR sched_dep AS sched_dep - INTERVAL '1' HOUR
) WITH (
  'connector' = 'filesystem',
  'path' = '${DIR}/flights_2013_01.csv',
  'format' = 'csv'
);

SELECT
  window_start,
  window_end,
  origin,
  COUNT(*) AS departures,
  SUM(dep_delay) AS delay_min,
  MAX(dep_delay) AS worst,
  COUNT(DISTINCT carrier) AS carriers
FROM TABLE(TUMBLE(TABLE flights, DESCRIPTOR(sched_dep), INTERVAL '1' HOUR))
GROUP BY window_start, window_end, origin;
