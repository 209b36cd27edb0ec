-- results: results of tokens: executions $1, nodes $2, paths $3, element by element.
-- RETURNS the place in the lists, from 1, and the row, of those that are there. Changes nothing.
SELECT g.place, f.body
FROM unnest($1::text[], $2::integer[], $3::bytea[]) WITH ORDINALITY AS g (id, node, path, place)
JOIN LATERAL (SELECT x.n FROM execution AS x WHERE x.id = g.id OFFSET 0) AS e ON true
JOIN LATERAL (
    SELECT r.body FROM fact AS r
    WHERE r.execution = e.n AND r.kind = 1 AND r.node = g.node AND r.path = g.path AND r.number = 0
    OFFSET 0
) AS f ON true
