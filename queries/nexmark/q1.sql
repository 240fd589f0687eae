-- Query 1, currency conversion: the price of each bid in euros.
-- The cast stands for the type of the column that the original inserts into: 0.908 is a DOUBLE here.

SELECT auction, bidder, CAST(0.908 * price AS DECIMAL(23, 3)) AS price, `dateTime`, extra
FROM bid;
