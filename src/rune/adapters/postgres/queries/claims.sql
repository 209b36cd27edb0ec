-- claims: how often each token of execution $1 was claimed. Changes nothing.
SELECT c.node, c.path, count(*) AS count FROM execution AS e JOIN claim AS c ON c.execution = e.n
WHERE e.id = $1 GROUP BY c.node, c.path
