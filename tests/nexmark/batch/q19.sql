SELECT auction, bidder, price, channel, url, dateTime, extra,
  row_number() OVER (PARTITION BY auction ORDER BY price DESC, event_number) AS rank_number
FROM bid
QUALIFY rank_number <= 10
