-- Query 3, local item suggestion: who sells in Oregon, Idaho or California in category 10, and which auctions?
-- A join without time.

SELECT P.name, P.city, P.state, A.id
FROM auction AS A
INNER JOIN person AS P ON A.seller = P.id
WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA');
