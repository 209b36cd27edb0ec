-- running: at most $2 executions that have not ended, by id, behind id $1.
-- RETURNS the id, and the earliest time that a row of a token without a result waits for, NULL if none does; a token
-- waits for what its newest row says. Changes nothing.
SELECT e.id, (
    SELECT min(f.due) FROM fact AS f
    WHERE f.execution = e.n AND f.due IS NOT NULL
      AND NOT EXISTS (
          SELECT FROM fact AS r WHERE r.execution = f.execution AND r.kind = 1 AND r.node = f.node
            AND r.path = f.path AND r.number = 0)
      AND NOT EXISTS (
          SELECT FROM fact AS l WHERE l.execution = f.execution AND l.kind IN (2, 3) AND l.node = f.node
            AND l.path = f.path AND l.seq > f.seq)
) AS due
FROM execution AS e WHERE e.ended_at IS NULL AND e.id > $1 ORDER BY e.id LIMIT $2
