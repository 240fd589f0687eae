WITH highest AS (
  SELECT (ms(dateTime) / 10000 + 1) * 10000 AS ends, max(price) AS price FROM bid GROUP BY (ms(dateTime) / 10000 + 1) * 10000
)
SELECT b.auction, b.price, b.bidder, b.dateTime, b.extra
FROM bid b JOIN highest h ON b.price = h.price
WHERE ms(b.dateTime) BETWEEN h.ends - 10000 AND h.ends
