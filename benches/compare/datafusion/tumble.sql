SELECT auction, ms(dateTime) / 10000 * 10000 AS starts, count(*), sum(price), avg(CAST(price AS DOUBLE))
FROM bid
GROUP BY auction, ms(dateTime) / 10000 * 10000
