-- signal: the signal of id $2 that execution $1 was given. Changes nothing.
SELECT f.body FROM execution AS e JOIN fact AS f ON f.execution = e.n
WHERE e.id = $1 AND f.kind = 7 AND f.node = -1 AND f.path = $2 AND f.number = 0
