-- Query 12, windows by the clock: how many bids each person made in ten seconds of processing time.
-- What is in which window depends on when rows are read; the counts of a person add up to all bids.

SELECT bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime
FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(p_time), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end;
