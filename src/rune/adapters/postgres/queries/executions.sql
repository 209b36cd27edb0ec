-- executions: at most $4 executions, newest first: of status $1 and workflow $2 where given, behind id $3 where given.
-- Changes nothing.
SELECT id, workflow, hash, status, at, ended_at, accepted, ending FROM execution
WHERE ($1::text IS NULL OR status = $1) AND ($2::text IS NULL OR workflow = $2)
  AND ($3::text IS NULL OR n < (SELECT b.n FROM execution AS b WHERE b.id = $3))
ORDER BY n DESC LIMIT $4
