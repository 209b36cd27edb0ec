-- facts: what is known of executions $1 behind numbers $2, at most $3 rows of each (NULL: all), element by element.
-- RETURNS the place in the lists, from 1, and the rows in commit order. Changes nothing.
SELECT g.place, f.seq, f.body, f.late
FROM unnest($1::text[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS g (id, behind, most, place)
JOIN LATERAL (SELECT x.n FROM execution AS x WHERE x.id = g.id OFFSET 0) AS e ON true
JOIN LATERAL (
    SELECT k.seq, k.body, k.late FROM fact AS k
    WHERE k.execution = e.n AND k.seq > g.behind AND k.kind <> 9 ORDER BY k.seq LIMIT g.most
) AS f ON true
ORDER BY g.place, f.seq
