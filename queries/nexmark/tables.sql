-- The tables of the Nexmark queries: persons, auctions and bids of an auction house, made up by rule.
-- 100,000 events in 100 seconds of event time, up to half a second out of order, so nothing is late.
--
--   tidegate run queries/nexmark/tables.sql queries/nexmark/q5.sql
--
-- Raise 'events.num' and 'first-event.rate' for more. These tables end, so a query gives its final rows;
-- add 'bounded' = 'false' to each, and it is planned as for a stream that goes on: results that change come
-- as changes (-f changelog-json).

CREATE TABLE person (
  id            BIGINT,
  name          STRING,
  emailAddress  STRING,
  creditCard    STRING,
  city          STRING,
  state         STRING,
  `dateTime`    TIMESTAMP(3),
  extra         STRING,
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH (
  'connector' = 'nexmark',
  'table' = 'person',
  'events.num' = '100000',
  'first-event.rate' = '1000',
  'max-disorder' = '500 ms'
);

CREATE TABLE auction (
  id            BIGINT,
  itemName      STRING,
  description   STRING,
  initialBid    BIGINT,
  reserve       BIGINT,
  `dateTime`    TIMESTAMP(3),
  expires       TIMESTAMP(3),
  seller        BIGINT,
  category      BIGINT,
  extra         STRING,
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH (
  'connector' = 'nexmark',
  'table' = 'auction',
  'events.num' = '100000',
  'first-event.rate' = '1000',
  'max-disorder' = '500 ms'
);

CREATE TABLE bid (
  auction     BIGINT,
  bidder      BIGINT,
  price       BIGINT,
  channel     STRING,
  url         STRING,
  `dateTime`  TIMESTAMP(3),
  extra       STRING,
  p_time      AS PROCTIME(),
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH (
  'connector' = 'nexmark',
  'table' = 'bid',
  'events.num' = '100000',
  'first-event.rate' = '1000',
  'max-disorder' = '500 ms'
);
