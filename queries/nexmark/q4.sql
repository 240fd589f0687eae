-- Query 4, average price for a category: the mean of the winning bids of all auctions.
-- An aggregate of an aggregate of a join. The mean has a fraction here; Flink cuts it off.

SELECT Q.category, AVG(Q.final) AS average
FROM (
  SELECT MAX(B.price) AS final, A.category
  FROM auction A, bid B
  WHERE A.id = B.auction AND B.`dateTime` BETWEEN A.`dateTime` AND A.expires
  GROUP BY A.id, A.category
) Q
GROUP BY Q.category;
