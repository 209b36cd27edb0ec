-- unused_definitions: at most $2 hashes behind $1 that no execution and no stored version names. Changes nothing.
SELECT d.hash FROM definition AS d
WHERE d.hash > $1 AND NOT EXISTS (SELECT FROM execution AS e WHERE e.hash = d.hash)
  AND NOT EXISTS (SELECT FROM version AS v WHERE v.hash = d.hash)
ORDER BY d.hash LIMIT $2
