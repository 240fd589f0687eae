SELECT auction, bidder, price, dateTime, 'value-' || (auction % 10000) FROM bid
