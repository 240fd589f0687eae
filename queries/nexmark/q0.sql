-- Query 0, pass through: each bid as it is. What it costs to move rows.

SELECT auction, bidder, price, `dateTime`, extra
FROM bid;
