-- A week of earthquakes by observing network and six hours. Rows arrive when a report was last
-- updated, up to 160 hours after the quake: most reports of old quakes are late.

CREATE TABLE reports (
  id        STRING,
  `time`    TIMESTAMP(3),
  mag       DOUBLE,
  net       STRING,
  felt      INT,
  `type`    STRING,
  geometry  ROW<lon DOUBLE, lat DOUBLE, depth DOUBLE>,
  WATERMARK FOR `time` AS `time` - INTERVAL '12' HOUR
) WITH (
  'connector' = 'filesystem',
  'path' = '${DIR}/earthquakes.ndjson',
  'format' = 'json',
  'timestamp-format' = 'epoch-millis'
);

SELECT
  window_start,
  net,
  COUNT(*) AS quakes,
  MAX(mag) AS strongest,
  MAX(r.geometry.depth) AS deepest,
  COUNT(felt) AS felt_reports,
  SUM(felt) AS felt_by,
  COUNT(*) FILTER (WHERE r.geometry.lat < 0) AS southern
FROM TABLE(TUMBLE(TABLE reports, DESCRIPTOR(`time`), INTERVAL '6' HOUR)) AS r
WHERE `type` = 'earthquake'
GROUP BY window_start, window_end, net;
