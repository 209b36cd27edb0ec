-- free: how many of executions $1 could go now. Changes nothing.
SELECT count(*) AS count FROM execution AS x
WHERE x.n = ANY ($1::bigint[]) AND x.ended_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM needs AS d WHERE d.other = x.id AND d.execution <> x.id)
  AND NOT EXISTS (SELECT FROM execution AS p WHERE p.id = x.parent AND p.ended_at IS NULL)
