-- claim: notes a claim of a token, execution $1, node $2, path $3, by incarnation $4 and fence $5 at $6.
-- RETURNS how often it was claimed before, and whether this claim is among those. Twice is once.
WITH e AS (SELECT n FROM execution WHERE id = $1),
noted AS (
    INSERT INTO claim (execution, node, path, incarnation, fence, at)
    SELECT e.n, $2, $3, $4, $5, $6 FROM e ON CONFLICT DO NOTHING
)
SELECT count(*) AS before, coalesce(bool_or(c.incarnation = $4 AND c.fence = $5), false) AS known
FROM e JOIN claim AS c ON c.execution = e.n AND c.node = $2 AND c.path = $3
