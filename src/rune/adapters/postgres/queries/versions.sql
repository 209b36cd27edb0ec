-- versions: the versions of workflow $1, the oldest first, with the aliases that point at each, and whether the workflow
-- is in sight. $2: only this number; $3: only where this alias points, with its weights; NULL for all. Changes nothing.
SELECT v.workflow, v.number, v.hash, v.at,
    ARRAY(SELECT a.name FROM alias AS a WHERE a.workflow = v.workflow AND a.number = v.number ORDER BY a.name)
        AS aliases,
    (SELECT a.weights FROM alias AS a WHERE a.workflow = v.workflow AND a.name = $3) AS weights,
    w.hidden_at IS NOT NULL AS hidden
FROM version AS v JOIN workflow AS w ON w.id = v.workflow
WHERE v.workflow = $1 AND ($2::bigint IS NULL OR v.number = $2)
  AND ($3::text IS NULL OR v.number = (SELECT a.number FROM alias AS a WHERE a.workflow = $1 AND a.name = $3))
ORDER BY v.number
