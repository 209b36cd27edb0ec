-- record_facts: writes runs of facts in one act; each run belongs to one execution and hangs on its first fact.
-- ARGUMENTS, one element per run:
--   executions, firsts   whose run it is; where in the lists of facts it begins, from 1
--   marks                names this attempt to write it, the same when it is sent again
--   statuses             what lists show from now on; NULL: as before
--   ended_ats, endings   of a run that ends its execution: when, and the terminal row; else NULL
--   letters              the code of a dead letter, or NULL
-- ARGUMENTS, one element per fact, run by run:
--   runs                 which run it belongs to, from 1
--   kinds, nodes, paths, numbers, dues, bodies
-- ARGUMENTS, one element per claim that was made meanwhile: claimed (the execution), claimed_nodes, claimed_paths,
--   incarnations, fences, claimed_ats. They go along; a claim that is known changes nothing.
-- Two runs of a call never name the same fact, and behind a run that has a status none follows of its execution:
-- whoever makes the groups sees to that.
-- RETURNS one row for each run that was not simply written:
--   unknown  there is no such execution; nothing was written
--   mine     it was written before under the same mark; `whole` tells whether all of it was
--   stored   its first fact is somebody else's; that one is the answer, nothing was written
--   ended    the execution has its terminal row, which is the answer; the facts were written, marked late
--   head     a later fact is known; only the first was written
-- A crash here leaves nothing of the whole call, or all of it.
CREATE FUNCTION record_facts(
    executions text[], firsts integer[], marks integer[], statuses text[], ended_ats bigint[], endings bytea[],
    letters text[], runs integer[], kinds smallint[], nodes integer[], paths bytea[], numbers integer[],
    dues bigint[], bodies bytea[], claimed text[], claimed_nodes integer[], claimed_paths bytea[],
    incarnations bigint[], fences bigint[], claimed_ats bigint[]
) RETURNS TABLE (run integer, verdict text, whole boolean, answer bytea)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
BEGIN
    -- In one order for everybody, so that no two writers wait for each other. The statement below begins behind the
    -- locks and therefore sees everything that was written under them.
    PERFORM pg_advisory_xact_lock(k.key)
    FROM (SELECT DISTINCT hashtextextended(e.id, 0) AS key FROM unnest(executions) AS e (id) ORDER BY key) AS k;

    RETURN QUERY
    WITH the_run AS MATERIALIZED (
        SELECT r.*, e.n, e.ending AS ended
        FROM unnest(executions, firsts, marks, statuses, ended_ats, endings, letters)
            WITH ORDINALITY AS r (id, first, mark, status, ended_at, ending, letter, run)
        LEFT JOIN LATERAL (SELECT x.n, x.ending FROM execution AS x WHERE x.id = r.id OFFSET 0) AS e ON true
    ), given AS MATERIALIZED (
        SELECT g.*, r.n, r.first, r.mark, r.ended, k.body AS known, k.mark AS known_mark, k.late AS known_late
        FROM unnest(runs, kinds, nodes, paths, numbers, dues, bodies)
            WITH ORDINALITY AS g (run, kind, node, path, number, due, body, place)
        JOIN the_run AS r ON r.run = g.run
        LEFT JOIN LATERAL (
            SELECT f.body, f.mark, f.late FROM fact AS f
            WHERE f.execution = r.n AND f.kind = g.kind AND f.node = g.node AND f.path = g.path
              AND f.number = g.number
            OFFSET 0
        ) AS k ON true
    ), met AS MATERIALIZED (
        SELECT g.run, bool_or(g.known IS NOT NULL) AS any_known,
            bool_and(g.known IS NOT NULL AND g.known_mark = g.mark) AS all_mine
        FROM given AS g GROUP BY g.run
    ), judged AS MATERIALIZED (
        SELECT r.*, m.all_mine, h.known, h.known_late,
            CASE
                WHEN r.n IS NULL THEN 'unknown'
                WHEN h.known_mark = r.mark THEN 'mine'
                WHEN r.ended IS NOT NULL AND (r.ending IS NOT NULL OR h.known IS NULL) THEN 'ended'
                WHEN h.known IS NOT NULL THEN 'stored'
                WHEN m.any_known THEN 'head'
                ELSE 'written'
            END AS verdict
        FROM the_run AS r JOIN met AS m ON m.run = r.run JOIN given AS h ON h.place = r.first
    ), written AS (
        INSERT INTO fact (execution, seq, due, node, number, mark, kind, late, path, body)
        SELECT w.n, nextval('fact_seq'), w.due, w.node, w.number, w.mark, w.kind, w.ended IS NOT NULL, w.path, w.body
        FROM (
            SELECT g.* FROM given AS g JOIN judged AS j ON j.run = g.run
            WHERE g.known IS NULL AND (
                j.verdict = 'written'
                OR j.verdict = 'head' AND g.place = g.first
                OR j.verdict = 'ended' AND j.known IS NULL AND g.kind <> 6
            )
            ORDER BY g.place
        ) AS w
    ), changed AS (
        UPDATE execution AS e SET status = j.status, ended_at = j.ended_at, ending = j.ending
        FROM judged AS j
        WHERE e.n = j.n AND j.verdict = 'written' AND j.status IS NOT NULL
    ), lettered AS (
        INSERT INTO dead_letter (execution, code, at)
        SELECT j.id, j.letter, j.ended_at FROM judged AS j WHERE j.verdict = 'written' AND j.letter IS NOT NULL
        ON CONFLICT DO NOTHING
    ), told AS (
        INSERT INTO outbox (execution, kind, until)
        SELECT j.id, 'end', 0 FROM judged AS j WHERE j.verdict = 'written' AND j.ending IS NOT NULL
        ON CONFLICT DO NOTHING
    )
    SELECT j.run::integer, j.verdict, j.all_mine,
        CASE
            WHEN j.verdict = 'stored' THEN j.known
            WHEN j.verdict = 'ended' OR j.verdict = 'mine' AND j.known_late THEN j.ended
        END
    FROM judged AS j WHERE j.verdict <> 'written';

    IF cardinality(claimed) > 0 THEN
        INSERT INTO claim (execution, node, path, incarnation, fence, at)
        SELECT e.n, c.node, c.path, c.incarnation, c.fence, c.at
        FROM unnest(claimed, claimed_nodes, claimed_paths, incarnations, fences, claimed_ats)
            AS c (id, node, path, incarnation, fence, at)
        JOIN LATERAL (SELECT x.n FROM execution AS x WHERE x.id = c.id OFFSET 0) AS e ON true
        ORDER BY e.n, c.node, c.path, c.incarnation, c.fence
        ON CONFLICT DO NOTHING;
    END IF;
END
$$;
