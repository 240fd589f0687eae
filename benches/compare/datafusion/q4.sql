WITH winning AS (
  SELECT a.id, a.category, max(b.price) AS final
  FROM auction a JOIN bid b ON a.id = b.auction
  WHERE b.dateTime >= a.dateTime AND b.dateTime <= a.expires
  GROUP BY a.id, a.category
)
SELECT category, avg(CAST(final AS DOUBLE)) FROM winning GROUP BY category
