-- Handlers to start. until: no process takes the row before; extended by the one that takes it.
CREATE TABLE hook (
    number    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    until     bigint NOT NULL,
    at        bigint NOT NULL,
    execution text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL,
    UNIQUE (execution, kind)
);

-- generation: how often the plan of an execution has changed.
ALTER TABLE execution ADD COLUMN generation integer NOT NULL DEFAULT 0;

-- settle_execution: as before, and writes the row of a hook for an end that is a failure or `the_hooked`.
CREATE FUNCTION settle_execution(
    the_id text, the_status text, the_ended_at bigint, the_ending bytea, the_letter text, the_hooked boolean
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM settle_execution(the_id, the_status, the_ended_at, the_ending, the_letter);
    IF the_ending IS NOT NULL AND (the_status IN ('failed', 'halted') OR the_hooked) THEN
        INSERT INTO hook (execution, kind, at, until)
        VALUES (the_id, 'failure', the_ended_at, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
        ON CONFLICT DO NOTHING;
    END IF;
END
$$;

-- record_facts: as before, and writes the rows of hooks.
-- ARGUMENTS, besides the former ones:
--   hooked       the runs, from 1, whose end has a hook although it is no failure
--   generations  the generation of the plan of each run; empty: not compared, as nothing changes a plan yet
CREATE FUNCTION record_facts(
    executions text[], marks integer[], settled integer[], statuses text[], ended_ats bigint[], endings bytea[],
    letters text[], runs integer[], kinds smallint[], nodes integer[], numbers integer[], dues bigint[],
    paths bytea[], bodies bytea[], claimed text[], claimed_nodes integer[], claimed_paths bytea[],
    incarnations bigint[], fences bigint[], claimed_ats bigint[], hooked integer[], generations integer[]
) RETURNS TABLE (run integer, verdict text, whole boolean, answer bytea)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_nestloop = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    all_new boolean := true;
    count_written bigint;
    judgement record;
    changed text[];
    moment bigint := extract(epoch FROM clock_timestamp()) * 1000;
BEGIN
    -- All writers lock in one order, so that they cannot deadlock. The statements below start after the locks are taken
    -- and therefore see everything that was written under them.
    PERFORM pg_advisory_xact_lock(k.key)
    FROM (SELECT DISTINCT hashtextextended(e.id, 0) AS key FROM unnest(executions) AS e (id) ORDER BY key) AS k;

    -- The plans must not depend on how few rows a table had when they were made: lookups use an index (LATERAL …
    -- OFFSET 0), and only the argument lists are joined, by hash.
    BEGIN
        -- Nearly always everything is new and no execution has ended: then the insert is sufficient.
        INSERT INTO fact (execution, seq, due, node, number, mark, kind, late, path, body)
        SELECT w.n, nextval('fact_seq'), w.due, w.node, w.number, w.mark, w.kind, false, w.path, w.body
        FROM (
            SELECT g.*, r.n, r.mark
            FROM unnest(runs, kinds, nodes, numbers, dues, paths, bodies)
                WITH ORDINALITY AS g (run, kind, node, number, due, path, body, place)
            JOIN (
                SELECT s.run, s.mark, e.n FROM unnest(executions, marks) WITH ORDINALITY AS s (id, mark, run)
                CROSS JOIN LATERAL (
                    SELECT x.n FROM execution AS x WHERE x.id = s.id AND x.ending IS NULL OFFSET 0
                ) AS e
            ) AS r ON r.run = g.run
            ORDER BY g.place
        ) AS w;
        GET DIAGNOSTICS count_written = ROW_COUNT;
        IF count_written < cardinality(runs) THEN
            RAISE unique_violation;
        END IF;
        IF cardinality(claimed) > 0 THEN
            INSERT INTO claim (execution, node, path, incarnation, fence, at)
            SELECT e.n, c.node, c.path, c.incarnation, c.fence, c.at
            FROM unnest(claimed, claimed_nodes, claimed_paths, incarnations, fences, claimed_ats)
                AS c (id, node, path, incarnation, fence, at)
            JOIN LATERAL (SELECT x.n FROM execution AS x WHERE x.id = c.id OFFSET 0) AS e ON true
            ORDER BY e.n, c.node, c.path, c.incarnation, c.fence;
        END IF;
    EXCEPTION WHEN unique_violation THEN
        all_new := false;
    END;

    IF all_new AND cardinality(settled) > 0 THEN
        -- A list of ids forces an index lookup for each row.
        changed := ARRAY(SELECT executions[s.run] FROM unnest(settled) WITH ORDINALITY AS s (run, place) ORDER BY s.place);
        UPDATE execution AS x
        SET status = statuses[array_position(changed, x.id)], ended_at = ended_ats[array_position(changed, x.id)],
            ending = endings[array_position(changed, x.id)]
        WHERE x.id = ANY (changed);
        INSERT INTO outbox (execution, kind, until)
        SELECT s.id, 'end', moment + 5000 FROM unnest(changed, endings) AS s (id, ending)
        WHERE s.ending IS NOT NULL ORDER BY s.id ON CONFLICT DO NOTHING;
        INSERT INTO hook (execution, kind, at, until)
        SELECT s.id, 'failure', s.ended_at, moment
        FROM unnest(changed, endings, ended_ats, statuses, settled) AS s (id, ending, ended_at, status, run)
        WHERE s.ending IS NOT NULL AND (s.status IN ('failed', 'halted') OR s.run = ANY (hooked))
        ORDER BY s.id ON CONFLICT DO NOTHING;
        INSERT INTO dead_letter (execution, code, at)
        SELECT s.id, s.letter, s.ended_at FROM unnest(changed, letters, ended_ats) AS s (id, letter, ended_at)
        WHERE s.letter IS NOT NULL ORDER BY s.id ON CONFLICT DO NOTHING;
    ELSIF NOT all_new THEN
        FOR judgement IN
            WITH the_run AS MATERIALIZED (
                SELECT r.id, r.mark, r.run, s.status, s.ended_at, s.ending, s.letter, e.n, e.ending AS ended
                FROM unnest(executions, marks) WITH ORDINALITY AS r (id, mark, run)
                LEFT JOIN unnest(settled, statuses, ended_ats, endings, letters)
                    AS s (run, status, ended_at, ending, letter) ON s.run = r.run
                LEFT JOIN LATERAL (SELECT x.n, x.ending FROM execution AS x WHERE x.id = r.id OFFSET 0) AS e ON true
            ), looked_up AS (
                SELECT g.kind, g.node, g.number, g.due, g.path, g.body, g.place, r.*,
                    k.body AS known, k.late AS known_late, k.mark = r.mark AS mine
                FROM unnest(runs, kinds, nodes, numbers, dues, paths, bodies)
                    WITH ORDINALITY AS g (run, kind, node, number, due, path, body, place)
                JOIN the_run AS r ON r.run = g.run
                LEFT JOIN LATERAL (
                    SELECT f.body, f.mark, f.late FROM fact AS f
                    WHERE f.execution = r.n AND f.kind = g.kind AND f.node = g.node AND f.path = g.path
                      AND f.number = g.number
                    OFFSET 0
                ) AS k ON true
            ), met AS (
                SELECT l.*, first_value(l.place) OVER run AS first,
                    first_value(l.known IS NOT NULL) OVER run AS head_known, first_value(l.mine) OVER run AS head_mine,
                    bool_or(l.known IS NOT NULL) OVER run AS any_known,
                    (array_agg(l.known) FILTER (WHERE l.kind = 9) OVER run)[1] AS taken,
                    bool_and(coalesce(l.mine, false)) OVER run AS all_mine
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
                        WHEN m.head_known OR m.taken IS NOT NULL THEN 'stored'
                        WHEN m.any_known THEN 'head'
                        ELSE 'written'
                    END AS verdict
                FROM met AS m
            ), written AS (
                INSERT INTO fact (execution, seq, due, node, number, mark, kind, late, path, body)
                SELECT w.n, nextval('fact_seq'), w.due, w.node, w.number, w.mark, w.kind, w.ended IS NOT NULL,
                    w.path, w.body
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
            IF judgement.verdict = 'written' THEN
                PERFORM settle_execution(
                    judgement.id, judgement.status, judgement.ended_at, judgement.ending, judgement.letter,
                    judgement.run = ANY (hooked));
                CONTINUE;
            END IF;
            run := judgement.run;
            verdict := judgement.verdict;
            whole := judgement.all_mine;
            answer := CASE
                WHEN verdict = 'stored' THEN coalesce(judgement.known, judgement.taken)
                WHEN verdict = 'ended' OR verdict = 'mine' AND judgement.known_late THEN judgement.ended
            END;
            RETURN NEXT;
        END LOOP;
    END IF;

    IF NOT all_new AND cardinality(claimed) > 0 THEN
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

-- The functions without hooks, for processes of the previous release: their failures have hooks too.
CREATE OR REPLACE FUNCTION record_facts(
    executions text[], marks integer[], settled integer[], statuses text[], ended_ats bigint[], endings bytea[],
    letters text[], runs integer[], kinds smallint[], nodes integer[], numbers integer[], dues bigint[],
    paths bytea[], bodies bytea[], claimed text[], claimed_nodes integer[], claimed_paths bytea[],
    incarnations bigint[], fences bigint[], claimed_ats bigint[]
) RETURNS TABLE (run integer, verdict text, whole boolean, answer bytea)
LANGUAGE sql AS $$
    SELECT * FROM record_facts(
        executions, marks, settled, statuses, ended_ats, endings, letters, runs, kinds, nodes, numbers, dues, paths,
        bodies, claimed, claimed_nodes, claimed_paths, incarnations, fences, claimed_ats, '{}', '{}'
    )
$$;

CREATE FUNCTION record_with_terms(
    executions text[], marks integer[], settled integer[], statuses text[], ended_ats bigint[], endings bytea[],
    letters text[], runs integer[], kinds smallint[], nodes integer[], numbers integer[], dues bigint[],
    paths bytea[], bodies bytea[], claimed text[], claimed_nodes integer[], claimed_paths bytea[],
    incarnations bigint[], fences bigint[], claimed_ats bigint[], term_runs integer[], terms text[],
    hooked integer[], generations integer[]
) RETURNS TABLE (run integer, verdict text, whole boolean, answer bytea)
LANGUAGE plpgsql
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT * FROM record_facts(
        executions, marks, settled, statuses, ended_ats, endings, letters, runs, kinds, nodes, numbers, dues, paths,
        bodies, claimed, claimed_nodes, claimed_paths, incarnations, fences, claimed_ats, hooked,
        generations
    );
    -- Another writer may have recorded another end first.
    INSERT INTO execution_term (term, n)
    SELECT t.term, e.n FROM unnest(term_runs, terms) AS t (run, term)
    CROSS JOIN LATERAL (
        SELECT x.n FROM execution AS x
        WHERE x.id = executions[t.run]
          AND x.ending IS NOT DISTINCT FROM endings[array_position(settled, t.run)] OFFSET 0
    ) AS e
    ON CONFLICT DO NOTHING;
END
$$;

CREATE OR REPLACE FUNCTION record_with_terms(
    executions text[], marks integer[], settled integer[], statuses text[], ended_ats bigint[], endings bytea[],
    letters text[], runs integer[], kinds smallint[], nodes integer[], numbers integer[], dues bigint[],
    paths bytea[], bodies bytea[], claimed text[], claimed_nodes integer[], claimed_paths bytea[],
    incarnations bigint[], fences bigint[], claimed_ats bigint[], term_runs integer[], terms text[]
) RETURNS TABLE (run integer, verdict text, whole boolean, answer bytea)
LANGUAGE sql AS $$
    SELECT * FROM record_with_terms(
        executions, marks, settled, statuses, ended_ats, endings, letters, runs, kinds, nodes, numbers, dues, paths,
        bodies, claimed, claimed_nodes, claimed_paths, incarnations, fences, claimed_ats, term_runs,
        terms, '{}', '{}'
    )
$$;
