SELECT channel, strftime(dateTime, '%Y-%m-%d') AS day, max(strftime(dateTime, '%H:%M')),
  count(*),
  count(*) FILTER (price < 10000),
  count(*) FILTER (price >= 10000 AND price < 1000000),
  count(*) FILTER (price >= 1000000),
  count(DISTINCT bidder),
  count(DISTINCT CASE WHEN price < 10000 THEN bidder END),
  count(DISTINCT CASE WHEN price >= 10000 AND price < 1000000 THEN bidder END),
  count(DISTINCT CASE WHEN price >= 1000000 THEN bidder END),
  count(DISTINCT auction),
  count(DISTINCT CASE WHEN price < 10000 THEN auction END),
  count(DISTINCT CASE WHEN price >= 10000 AND price < 1000000 THEN auction END),
  count(DISTINCT CASE WHEN price >= 1000000 THEN auction END)
FROM bid
GROUP BY channel, day
