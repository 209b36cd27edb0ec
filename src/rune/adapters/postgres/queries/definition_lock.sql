-- definition_lock: nobody names definitions $1 until the transaction ends; in one order for everybody.
SELECT count(pg_advisory_xact_lock(k.key))
FROM (SELECT DISTINCT hashtextextended(d.hash, 2) AS key FROM unnest($1::text[]) AS d (hash) ORDER BY key) AS k
