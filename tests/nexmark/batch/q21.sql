WITH named AS (
  SELECT *,
    CASE channel WHEN 'Apple' THEN '0' WHEN 'Google' THEN '1' WHEN 'Facebook' THEN '2' WHEN 'Baidu' THEN '3'
      ELSE nullif(split_part(url, '&channel_id=', 2), '') END AS channel_id
  FROM bid
)
SELECT auction, bidder, price, channel, channel_id FROM named WHERE channel_id IS NOT NULL
