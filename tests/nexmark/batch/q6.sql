WITH winning AS (
  SELECT a.id, a.seller, b.price, b.dateTime
  FROM auction a JOIN bid b ON a.id = b.auction
  WHERE b.dateTime BETWEEN a.dateTime AND a.expires
  QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime, b.event_number) = 1
), summed AS (
  SELECT seller, id, sum(price) OVER last_ten AS total, count(*) OVER last_ten AS number
  FROM winning
  WINDOW last_ten AS (PARTITION BY seller ORDER BY dateTime, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)
)
SELECT seller, id, total::DOUBLE / number FROM summed
