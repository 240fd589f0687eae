SELECT auction, bidder, CAST(CAST(0.908 AS DOUBLE) * price AS DECIMAL(23, 3)) AS price, dateTime, extra FROM bid
