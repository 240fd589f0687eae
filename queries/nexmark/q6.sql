-- Query 6, average selling price by seller: the mean of the winning bids of a seller's last ten auctions,
-- in the order in which the bids came.

SELECT Q.seller, Q.id,
  AVG(Q.price) OVER (PARTITION BY Q.seller ORDER BY Q.`dateTime`, Q.id
    ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS average
FROM (
  SELECT *
  FROM (
    SELECT A.id, A.seller, B.price, B.`dateTime`,
      ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.`dateTime`) AS rownum
    FROM auction AS A, bid AS B
    WHERE A.id = B.auction AND B.`dateTime` BETWEEN A.`dateTime` AND A.expires
  )
  WHERE rownum <= 1
) AS Q;
