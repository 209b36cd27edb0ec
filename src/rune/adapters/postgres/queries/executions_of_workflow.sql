-- executions_of_workflow: at most $2 executions of workflow $3 with statuses $4, newest first, behind id $1 where
-- given. The newest of each status are read along the index, and the newest of those are shown. Changes nothing.
SELECT e.id, e.workflow, e.hash, e.status, e.at, e.ended_at, e.accepted, e.ending
FROM unnest($4::text[]) AS s (status)
JOIN LATERAL (
    SELECT x.n, x.id, x.workflow, x.hash, x.status, x.at, x.ended_at, x.accepted, x.ending FROM execution AS x
    WHERE x.workflow = $3 AND x.status = s.status
      AND x.n < coalesce((SELECT b.n FROM execution AS b WHERE b.id = $1), CASE WHEN $1::text IS NULL THEN 9223372036854775807 END)
    ORDER BY x.n DESC LIMIT $2
) AS e ON true
ORDER BY e.n DESC LIMIT $2
