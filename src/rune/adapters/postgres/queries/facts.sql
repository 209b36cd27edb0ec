-- facts: what is known of execution $1 behind number $2, in commit order. Changes nothing.
SELECT f.seq, f.body, f.late FROM execution AS e JOIN fact AS f ON f.execution = e.n
WHERE e.id = $1 AND f.seq > $2 ORDER BY f.seq
