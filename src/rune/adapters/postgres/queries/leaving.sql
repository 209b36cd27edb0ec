-- leaving: marks note $1, unless its id was given out again or somebody else is at it: for $2 ms nobody gets the id.
-- RETURNS the mark. Behind the lock, so that a start comes before it and is seen, or after it and waits.
UPDATE removed AS r
SET leaving = c.now + $2::bigint
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) AS c
WHERE r.n = $1::bigint AND r.leaving <= c.now AND NOT EXISTS (SELECT FROM execution AS e WHERE e.id = r.id)
RETURNING r.leaving
