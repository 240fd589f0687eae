SELECT auction, bidder, CAST(price AS DECIMAL(18, 0)) * CAST('0.908' AS DECIMAL(4, 3)), dateTime, extra FROM bid
