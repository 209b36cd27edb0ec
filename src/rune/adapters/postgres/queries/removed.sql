-- removed: at most $2 notes of executions that are off the list and have to be looked at by $1; whether their id was
-- given out again. Changes nothing.
SELECT r.n, r.id, EXISTS (SELECT FROM execution AS e WHERE e.id = r.id) AS reused
FROM removed AS r WHERE r.until <= $1 ORDER BY r.until, r.n LIMIT $2
