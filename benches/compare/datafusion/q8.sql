SELECT DISTINCT p.id, p.name, ms(p.dateTime) / 10000 * 10000
FROM person p JOIN auction a
  ON p.id = a.seller AND ms(p.dateTime) / 10000 = ms(a.dateTime) / 10000
