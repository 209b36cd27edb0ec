-- removed: at most $2 notes of executions that are off the list and have to be looked at by $1, without those that somebody
-- is at; whether their id was given out again, and their mark. Changes nothing.
SELECT r.n, r.id, r.leaving, EXISTS (SELECT FROM execution AS e WHERE e.id = r.id) AS reused
FROM removed AS r
WHERE r.until <= $1 AND r.leaving <= extract(epoch FROM clock_timestamp()) * 1000
ORDER BY r.until, r.n LIMIT $2
