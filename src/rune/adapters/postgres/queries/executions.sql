-- executions: at most $2 executions, newest first, behind id $1 where given. Changes nothing.
SELECT id, workflow, hash, status, at, ended_at, accepted, ending FROM execution
WHERE n < coalesce((SELECT b.n FROM execution AS b WHERE b.id = $1), CASE WHEN $1::text IS NULL THEN 9223372036854775807 END)
ORDER BY n DESC LIMIT $2
