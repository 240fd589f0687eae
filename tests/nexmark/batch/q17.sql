SELECT auction, strftime(dateTime, '%Y-%m-%d') AS day,
  count(*),
  count(*) FILTER (price < 10000),
  count(*) FILTER (price >= 10000 AND price < 1000000),
  count(*) FILTER (price >= 1000000),
  min(price), max(price), sum(price)::DOUBLE / count(*), sum(price)
FROM bid
GROUP BY auction, day
