-- rights: what the user of this connection may do with each table: the letters of SELECT, INSERT, UPDATE and DELETE, and
-- whether it could change the table itself. Changes nothing.
SELECT c.relname,
    concat(
        CASE WHEN has_table_privilege(c.oid, 'SELECT') THEN 'r' END,
        CASE WHEN has_table_privilege(c.oid, 'INSERT') THEN 'a' END,
        CASE WHEN has_table_privilege(c.oid, 'UPDATE') THEN 'w' END,
        CASE WHEN has_table_privilege(c.oid, 'DELETE') THEN 'd' END
    ),
    pg_has_role(c.relowner, 'USAGE')
FROM pg_class AS c
WHERE c.relkind IN ('r', 'p') AND c.relnamespace = to_regnamespace(current_schema())
