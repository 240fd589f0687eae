-- Query 13, bounded side input: each bid with a value from a small table.
-- The original looks the value up by processing time (FOR SYSTEM_TIME AS OF p_time), which is not known here
-- yet; the small table does not change, so a join without time gives the same rows.

CREATE TABLE side_input (
  `key`    BIGINT,
  `value`  STRING
) WITH (
  'connector' = 'datagen',
  'number-of-rows' = '10000',
  'fields.key.kind' = 'sequence',
  'fields.value.kind' = 'sequence',
  'fields.value.prefix' = 'value-'
);

SELECT B.auction, B.bidder, B.price, B.`dateTime`, S.`value`
FROM bid AS B
JOIN side_input AS S ON MOD(B.auction, 10000) = S.`key`;
