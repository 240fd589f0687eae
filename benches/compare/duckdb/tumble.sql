SELECT auction, epoch_ms(dateTime) // 10000 * 10000 AS starts, count(*), sum(price), avg(price)
FROM bid
GROUP BY auction, starts
