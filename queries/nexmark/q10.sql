-- Query 10, log to files: each bid with the day and the minute that name its file.
-- The original writes a partition for each minute; tables with PARTITIONED BY are not known here yet, so this
-- gives what the partitions are told apart by.

SELECT auction, bidder, price, `dateTime`, extra,
  DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS dt,
  DATE_FORMAT(`dateTime`, 'HH:mm') AS hm
FROM bid;
