-- An INSERT into fewer digits rounds down, also before 1970: the row keeps its second
CREATE TABLE o (ts TIMESTAMP(3), l TIMESTAMP_LTZ(3)) WITH ('connector'='filesystem', 'path'='o.json', 'format'='json');
INSERT INTO o SELECT TIMESTAMP '1969-12-31 23:59:59.999999', CAST('1969-12-31 23:59:59.999999' AS TIMESTAMP_LTZ(6));
SELECT ts, l FROM o;
