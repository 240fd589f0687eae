SELECT to_char(dateTime, '%Y-%m-%d') AS day,
  count(*),
  count(*) FILTER (WHERE price < 10000),
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000),
  count(*) FILTER (WHERE price >= 1000000),
  count(DISTINCT bidder),
  count(DISTINCT CASE WHEN price < 10000 THEN bidder END),
  count(DISTINCT CASE WHEN price >= 10000 AND price < 1000000 THEN bidder END),
  count(DISTINCT CASE WHEN price >= 1000000 THEN bidder END),
  count(DISTINCT auction),
  count(DISTINCT CASE WHEN price < 10000 THEN auction END),
  count(DISTINCT CASE WHEN price >= 10000 AND price < 1000000 THEN auction END),
  count(DISTINCT CASE WHEN price >= 1000000 THEN auction END)
FROM bid
GROUP BY to_char(dateTime, '%Y-%m-%d')
