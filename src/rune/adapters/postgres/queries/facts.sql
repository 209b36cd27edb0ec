-- facts: what is known of executions $1 behind numbers $2, element by element.
-- RETURNS the place in the lists, from 1, and the rows in commit order. Changes nothing.
SELECT g.place, f.seq, f.body, f.late
FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS g (id, behind, place)
JOIN LATERAL (SELECT x.n FROM execution AS x WHERE x.id = g.id OFFSET 0) AS e ON true
JOIN LATERAL (
    SELECT k.seq, k.body, k.late FROM fact AS k
    WHERE k.execution = e.n AND k.seq > g.behind AND k.kind <> 9 ORDER BY k.seq OFFSET 0
) AS f ON true
ORDER BY g.place, f.seq
