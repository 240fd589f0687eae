SELECT bidder, count(*) FROM bid GROUP BY bidder
