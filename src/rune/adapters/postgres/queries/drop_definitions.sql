-- drop_definitions: drops those of $1 that are still unused. RETURNS how many. It stands and falls with the transaction.
WITH dropped AS (
    DELETE FROM definition AS d
    WHERE d.hash = ANY ($1::text[]) AND NOT EXISTS (SELECT FROM execution AS e WHERE e.hash = d.hash)
      AND NOT EXISTS (SELECT FROM version AS v WHERE v.hash = d.hash)
    RETURNING 1
)
SELECT count(*) FROM dropped
