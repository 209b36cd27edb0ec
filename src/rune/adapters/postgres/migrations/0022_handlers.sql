-- Handlers that cannot be started. tries: how often the row was taken; error: why the last start failed; given_up: since
-- when it is not taken any more.
ALTER TABLE hook
    ADD COLUMN tries integer NOT NULL DEFAULT 0,
    ADD COLUMN error text NOT NULL DEFAULT '',
    ADD COLUMN given_up bigint;

-- record_late: as record_with_terms, and writes the rows of hooks of executions that are late.
-- ARGUMENTS, besides the former ones:
--   late_runs  the runs, from 1, that record that their execution is late
--   late_ats   when each of them is
-- Only the writer of the fact writes the row, so that it does not come back after the handler was started.
CREATE FUNCTION record_late(
    executions text[], marks integer[], settled integer[], statuses text[], ended_ats bigint[], endings bytea[],
    letters text[], runs integer[], kinds smallint[], nodes integer[], numbers integer[], dues bigint[],
    paths bytea[], bodies bytea[], claimed text[], claimed_nodes integer[], claimed_paths bytea[],
    incarnations bigint[], fences bigint[], claimed_ats bigint[], term_runs integer[], terms text[],
    hooked integer[], generations integer[], late_runs integer[], late_ats bigint[]
) RETURNS TABLE (run integer, verdict text, whole boolean, answer bytea)
LANGUAGE plpgsql
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT * FROM record_with_terms(
        executions, marks, settled, statuses, ended_ats, endings, letters, runs, kinds, nodes, numbers, dues, paths,
        bodies, claimed, claimed_nodes, claimed_paths, incarnations, fences, claimed_ats, term_runs, terms, hooked,
        generations
    );
    INSERT INTO hook (execution, kind, at, until)
    SELECT executions[l.run], 'late', l.at, (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    FROM unnest(late_runs, late_ats) AS l (run, at)
    CROSS JOIN LATERAL (SELECT x.n FROM execution AS x WHERE x.id = executions[l.run] OFFSET 0) AS e
    CROSS JOIN LATERAL (
        SELECT 1 FROM fact AS f
        WHERE f.execution = e.n AND f.kind = 12 AND f.node = -1 AND f.path = '' AND f.number = 0
          AND f.mark = marks[l.run] AND NOT f.late
        OFFSET 0
    ) AS mine
    ORDER BY executions[l.run]
    ON CONFLICT DO NOTHING;
END
$$;
