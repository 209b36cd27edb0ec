-- of_token: results, failed attempts and suspensions of the token of node $2 in path $3 of execution $1, in commit order.
-- Changes nothing.
SELECT f.body FROM execution AS e JOIN fact AS f ON f.execution = e.n
WHERE e.id = $1 AND f.kind IN (1, 2, 3) AND f.node = $2 AND f.path = $3 AND NOT f.late ORDER BY f.seq
