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
SET jit = off
SET enable_nestloop = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    judgement record;
BEGIN
    -- In one order for everybody, so that no two writers wait for each other. The statement below begins behind the
    -- locks and therefore sees everything that was written under them.
    PERFORM pg_advisory_xact_lock(k.key)
    FROM (SELECT DISTINCT hashtextextended(e.id, 0) AS key FROM unnest(executions) AS e (id) ORDER BY key) AS k;

    -- The plan must not depend on how few rows a table held when it was made: what is looked up goes through an index
    -- (LATERAL … OFFSET 0), what is joined are the lists, by hash.
    FOR judgement IN
        WITH the_run AS MATERIALIZED (
            SELECT r.*, e.n, e.ending AS ended
            FROM unnest(executions, firsts, marks, statuses, ended_ats, endings, letters)
                WITH ORDINALITY AS r (id, first, mark, status, ended_at, ending, letter, run)
            LEFT JOIN LATERAL (SELECT x.n, x.ending FROM execution AS x WHERE x.id = r.id OFFSET 0) AS e ON true
        ), looked_up AS (
            SELECT g.kind, g.node, g.path, g.number, g.due, g.body, g.place, r.*,
                k.body AS known, k.late AS known_late, k.mark = r.mark AS mine
            FROM unnest(runs, kinds, nodes, paths, numbers, dues, bodies)
                WITH ORDINALITY AS g (run, kind, node, path, number, due, body, place)
            JOIN the_run AS r ON r.run = g.run
            LEFT JOIN LATERAL (
                SELECT f.body, f.mark, f.late FROM fact AS f
                WHERE f.execution = r.n AND f.kind = g.kind AND f.node = g.node AND f.path = g.path
                  AND f.number = g.number
                OFFSET 0
            ) AS k ON true
        ), met AS (
            SELECT l.*, first_value(l.known IS NOT NULL) OVER run AS head_known, first_value(l.mine) OVER run AS head_mine,
                bool_or(l.known IS NOT NULL) OVER run AS any_known, bool_and(coalesce(l.mine, false)) OVER run AS all_mine
            FROM looked_up AS l
            WINDOW run AS (
                PARTITION BY l.run ORDER BY l.place ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
            )
        ), judged AS MATERIALIZED (
            SELECT m.*,
                CASE
                    WHEN m.n IS NULL THEN 'unknown'
                    WHEN m.head_mine THEN 'mine'
                    WHEN m.ended IS NOT NULL AND (m.ending IS NOT NULL OR NOT m.head_known) THEN 'ended'
                    WHEN m.head_known THEN 'stored'
                    WHEN m.any_known THEN 'head'
                    ELSE 'written'
                END AS verdict
            FROM met AS m
        ), written AS (
            INSERT INTO fact (execution, seq, due, node, number, mark, kind, late, path, body)
            SELECT w.n, nextval('fact_seq'), w.due, w.node, w.number, w.mark, w.kind, w.ended IS NOT NULL, w.path, w.body
            FROM (
                SELECT * FROM judged AS j
                WHERE j.known IS NULL AND (
                    j.verdict = 'written'
                    OR j.verdict = 'head' AND j.place = j.first
                    OR j.verdict = 'ended' AND NOT j.head_known AND j.kind <> 6
                )
                ORDER BY j.place
            ) AS w
        )
        SELECT * FROM judged AS j WHERE j.place = j.first AND (j.verdict <> 'written' OR j.status IS NOT NULL)
    LOOP
        IF judgement.verdict <> 'written' THEN
            run := judgement.run;
            verdict := judgement.verdict;
            whole := judgement.all_mine;
            answer := CASE
                WHEN verdict = 'stored' THEN judgement.known
                WHEN verdict = 'ended' OR verdict = 'mine' AND judgement.known_late THEN judgement.ended
            END;
            RETURN NEXT;
            CONTINUE;
        END IF;
        UPDATE execution AS e
        SET status = judgement.status, ended_at = judgement.ended_at, ending = judgement.ending
        WHERE e.n = judgement.n;
        IF judgement.ending IS NOT NULL THEN
            INSERT INTO outbox (execution, kind, until) VALUES (judgement.id, 'end', 0) ON CONFLICT DO NOTHING;
        END IF;
        IF judgement.letter IS NOT NULL THEN
            INSERT INTO dead_letter (execution, code, at)
            VALUES (judgement.id, judgement.letter, judgement.ended_at) ON CONFLICT DO NOTHING;
        END IF;
    END LOOP;

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
