-- selected: at most $7 ended executions of workflow $1 before the cursor ($2, $3), newest first: those that lie before
-- the bound ($5, $6) of their status $4, element by element. Changes nothing.
SELECT e.n, e.id, e.ended_at FROM execution AS e
JOIN unnest($4::text[], $5::bigint[], $6::bigint[]) AS b (status, ended_at, n)
    ON b.status = e.status AND (e.ended_at, e.n) < (b.ended_at, b.n)
WHERE e.workflow = $1 AND e.ended_at IS NOT NULL AND (e.ended_at, e.n) < ($2, $3)
ORDER BY e.ended_at DESC, e.n DESC LIMIT $7
