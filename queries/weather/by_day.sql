-- How each day's weather at the three New York airports grows, every six hours.
-- Observations come in order, several with the same time: nothing is late. Empty fields are NULL.

CREATE TABLE weather (
  origin      STRING,
  obs_time    TIMESTAMP(3),
  temp        DOUBLE,
  wind_speed  DOUBLE,
  precip      DOUBLE,
  pressure    DOUBLE,
  WATERMARK FOR obs_time AS obs_time - INTERVAL '0.001' SECOND
) WITH (
  'connector' = 'filesystem',
  'path' = '${DIR}/weather_2013_01.csv',
  'format' = 'csv'
);

SELECT
  window_start,
  window_end,
  origin,
  COUNT(*) AS observations,
  MIN(temp) AS coldest,
  MAX(temp) AS warmest,
  COUNT(pressure) AS pressures,
  MIN(pressure) AS lowest_pressure,
  COUNT(*) FILTER (WHERE precip > 0) AS wet_hours
FROM TABLE(CUMULATE(TABLE weather, DESCRIPTOR(obs_time), INTERVAL '6' HOUR, INTERVAL '1' DAY))
GROUP BY window_start, window_end, origin
HAVING MAX(wind_speed) >= 20;
