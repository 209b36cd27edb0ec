-- What executions are searched by besides workflow, status and time: one row per term, such as `label:customer=7`,
-- `principal:key:k1`, `code:HTTP_TIMEOUT`. n: the number of the execution.

CREATE TABLE execution_term (
    n    bigint NOT NULL,
    term text COLLATE "C" NOT NULL,
    PRIMARY KEY (term, n)
);
CREATE INDEX execution_term_n ON execution_term (n);
CREATE INDEX execution_parent ON execution (parent, n) WHERE parent IS NOT NULL;

CREATE FUNCTION execution_term_goes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM execution_term AS t USING gone AS g WHERE t.n = g.n;
    RETURN NULL;
END
$$;
CREATE TRIGGER execution_term_goes AFTER DELETE ON execution
REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION execution_term_goes();

-- add_start_terms: adds the terms of starts that were written just now, in the same transaction.
-- ARGUMENTS: ids of the starts of a call; known: numbers of those that were not written; one element per term: starts
-- (which start, from 1), terms.
CREATE FUNCTION add_start_terms(ids text[], known integer[], starts integer[], terms text[]) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET jit = off
AS $$
BEGIN
    INSERT INTO execution_term (term, n)
    SELECT t.term, e.n FROM unnest(starts, terms) AS t (start, term)
    CROSS JOIN LATERAL (SELECT x.n FROM execution AS x WHERE x.id = ids[t.start] OFFSET 0) AS e
    WHERE t.start <> ALL (known)
    ON CONFLICT DO NOTHING;
END
$$;

-- accept_with_terms: accept_executions, and the terms of the starts that it writes. All or nothing is committed.
CREATE FUNCTION accept_with_terms(
    ids text[], workflows text[], hashes text[], ats bigint[], accepteds bytea[], keys text[], digests bytea[],
    parents text[], parent_nodes integer[], parent_paths bytea[], parent_attempts integer[], defined boolean[],
    needing integer[], others text[], starts integer[], kinds smallint[], nodes integer[], numbers integer[],
    dues bigint[], paths bytea[], bodies bytea[], patience bigint, term_starts integer[], terms text[]
) RETURNS TABLE (start integer, verdict text, name text, answer bytea)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    known integer[] := '{}';
    judged record;
BEGIN
    FOR judged IN SELECT * FROM accept_executions(
        ids, workflows, hashes, ats, accepteds, keys, digests, parents, parent_nodes, parent_paths, parent_attempts,
        defined, needing, others, starts, kinds, nodes, numbers, dues, paths, bodies, patience
    ) LOOP
        known := known || judged.start;
        RETURN QUERY SELECT judged.start, judged.verdict, judged.name, judged.answer;
    END LOOP;
    PERFORM add_start_terms(ids, known, term_starts, terms);
END
$$;

-- accept_limited_with_terms: accept_limited, and the terms of the start if it writes it. All or nothing is committed.
CREATE FUNCTION accept_limited_with_terms(
    subjects text[], closed boolean,
    ids text[], workflows text[], hashes text[], ats bigint[], accepteds bytea[], keys text[], digests bytea[],
    parents text[], parent_nodes integer[], parent_paths bytea[], parent_attempts integer[], defined boolean[],
    needing integer[], others text[], starts integer[], kinds smallint[], nodes integer[], numbers integer[],
    dues bigint[], paths bytea[], bodies bytea[], patience bigint, term_starts integer[], terms text[]
) RETURNS TABLE (start integer, verdict text, name text, answer bytea, pause bigint)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    known integer[] := '{}';
    judged record;
BEGIN
    FOR judged IN SELECT * FROM accept_limited(
        subjects, closed, ids, workflows, hashes, ats, accepteds, keys, digests, parents, parent_nodes, parent_paths,
        parent_attempts, defined, needing, others, starts, kinds, nodes, numbers, dues, paths, bodies, patience
    ) LOOP
        known := known || judged.start;
        RETURN QUERY SELECT judged.start, judged.verdict, judged.name, judged.answer, judged.pause;
    END LOOP;
    PERFORM add_start_terms(ids, known, term_starts, terms);
END
$$;

-- record_with_terms: record_facts, and terms of the executions whose facts it writes.
-- ARGUMENTS, one element per term: term_runs (which run, from 1), terms. A term of a run that ends its execution is added
-- only if that end is the one that is stored.
-- All or nothing is committed.
CREATE FUNCTION record_with_terms(
    executions text[], marks integer[], settled integer[], statuses text[], ended_ats bigint[], endings bytea[],
    letters text[], runs integer[], kinds smallint[], nodes integer[], numbers integer[], dues bigint[],
    paths bytea[], bodies bytea[], claimed text[], claimed_nodes integer[], claimed_paths bytea[],
    incarnations bigint[], fences bigint[], claimed_ats bigint[], term_runs integer[], terms text[]
) RETURNS TABLE (run integer, verdict text, whole boolean, answer bytea)
LANGUAGE plpgsql
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT * FROM record_facts(
        executions, marks, settled, statuses, ended_ats, endings, letters, runs, kinds, nodes, numbers, dues, paths,
        bodies, claimed, claimed_nodes, claimed_paths, incarnations, fences, claimed_ats
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
