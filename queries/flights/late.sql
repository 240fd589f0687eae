-- The hourly departures of hourly.sql, and the rows that came too late for their hour in a file of
-- their own: which hour they missed, and how far the watermark was just before them. Run it with -D OUT=folder.

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

-- Of what a late row has, this table keeps what it names.
CREATE TABLE late_flights (
  flight             STRING,
  origin             STRING,
  sched_dep          TIMESTAMP(3),
  late_window_start  TIMESTAMP(3),
  late_window_end    TIMESTAMP(3),
  late_watermark     TIMESTAMP(3)
) WITH (
  'connector' = 'filesystem',
  'path' = '${OUT}/late_flights.ndjson',
  'format' = 'json',
  'sink.overwrite' = 'true'
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
GROUP BY window_start, window_end, origin
LATE ROWS INTO late_flights;
