-- Which windows there are depends on the clock; the test adds them up.
SELECT bidder, count(*) FROM bid GROUP BY bidder
