"""The insert statement of a client without an engine: fact rows into the separate table `bare`."""

from __future__ import annotations

INSERT = """
INSERT INTO bare (execution, seq, due, node, number, mark, kind, late, path, body)
SELECT g.execution, nextval('fact_seq'), g.due, g.node, g.number, 0, g.kind, false, g.path, g.body
FROM unnest($1::bigint[], $2::text::smallint[], $3::text::integer[], $4::text::integer[], $5::text::bigint[],
    $6::bytea[], $7::bytea[]) AS g (execution, kind, node, number, due, path, body)
"""
