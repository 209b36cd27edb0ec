-- accept_executions: writes starts in one transaction, each with its initial facts and its idempotency key.
-- ARGUMENTS, one element per start:
--   ids, workflows, hashes, ats, accepteds
--   keys, digests        the idempotency key and the digest of the request; NULL without one
--   parents              the execution that waits for the end of this one, or NULL; its token and attempt:
--                        parent_nodes, parent_paths, parent_attempts
--   defined              whether the definition must exist
-- ARGUMENTS, one element per reference: `others`, whose blobs start number `needing` references.
-- ARGUMENTS, one element per initial fact: `starts` (which start, from 1), kinds … bodies as in record_facts.
-- The caller guarantees that no two starts of a call have the same id or the same key.
-- RETURNS one row for each start that was not written:
--   leaving    blobs of a removed execution with this id are being deleted from an external store
--   known      an execution with this id or key exists; its row is the answer
--   conflict   the key was used with another request
--   spent      the key was used for the execution `name`, which was removed
--   undefined  the definition does not exist
--   orphan     the parent has ended; its terminal row is the answer, NULL if it was removed
--   over       the parent runs, but the token that starts this one has a result, or its attempt has failed
--   gone       the execution `name`, whose blobs it needs, was removed
-- All or nothing of the call is committed.
CREATE FUNCTION accept_executions(
    ids text[], workflows text[], hashes text[], ats bigint[], accepteds bytea[], keys text[], digests bytea[],
    parents text[], parent_nodes integer[], parent_paths bytea[], parent_attempts integer[], defined boolean[], needing integer[], others text[], starts integer[], kinds smallint[],
    nodes integer[], numbers integer[], dues bigint[], paths bytea[], bodies bytea[], patience bigint
) RETURNS TABLE (start integer, verdict text, name text, answer bytea)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
SET enable_nestloop = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    moment bigint := extract(epoch FROM clock_timestamp()) * 1000;
BEGIN
    -- Definitions are locked against removal only: any number of concurrent starts may reference the same one.
    PERFORM CASE WHEN k.shared THEN pg_advisory_xact_lock_shared(k.key) ELSE pg_advisory_xact_lock(k.key) END
    FROM (
        SELECT l.key, bool_and(l.shared) AS shared
        FROM (
            SELECT hashtextextended(e.id, 0) AS key, false AS shared
            FROM unnest(ids || others || array_remove(parents, NULL)) AS e (id)
            UNION ALL
            SELECT hashtextextended(c.key, 1), false FROM unnest(array_remove(keys, NULL)) AS c (key)
            UNION ALL
            SELECT hashtextextended(d.hash, 2), true FROM unnest(hashes) AS d (hash)
        ) AS l
        GROUP BY l.key ORDER BY l.key
    ) AS k;

    RETURN QUERY
    WITH given AS MATERIALIZED (
        SELECT g.*,
            x.accepted AS same_id, u.execution AS used_by, u.digest AS used_for, u.expires, y.accepted AS under_key,
            p.n AS parent_n, p.ending AS parent_ending, o.over, m.other AS missing,
            g.defined AND d.hash IS NULL AS undefined,
            EXISTS (SELECT FROM removed AS r WHERE r.id = g.id AND r.leaving > moment) AS leaving
        FROM unnest(
            ids, workflows, hashes, ats, accepteds, keys, digests, parents, parent_nodes, parent_paths, parent_attempts,
            defined
        ) WITH ORDINALITY AS g (
            id, workflow, hash, at, accepted, key, digest, parent, parent_node, parent_path, parent_attempt, defined,
            start
        )
        LEFT JOIN LATERAL (SELECT e.accepted FROM execution AS e WHERE e.id = g.id OFFSET 0) AS x ON true
        LEFT JOIN LATERAL (
            SELECT c.execution, c.digest, c.expires FROM client_key AS c
            WHERE c.key = g.key AND (c.expires IS NULL OR c.expires > g.at) OFFSET 0
        ) AS u ON true
        LEFT JOIN LATERAL (SELECT e.accepted FROM execution AS e WHERE e.id = u.execution OFFSET 0) AS y ON true
        LEFT JOIN LATERAL (SELECT e.n, e.ending FROM execution AS e WHERE e.id = g.parent OFFSET 0) AS p ON true
        LEFT JOIN LATERAL (
            -- One by one, so that each is an index lookup, however many facts the parent has.
            SELECT true AS over FROM (
                SELECT FROM fact AS f
                WHERE f.execution = p.n AND f.kind = 1 AND f.node = g.parent_node AND f.path = g.parent_path
                UNION ALL
                SELECT FROM fact AS f
                WHERE f.execution = p.n AND f.kind = 2 AND f.node = g.parent_node AND f.path = g.parent_path
                  AND f.number >= g.parent_attempt
            ) AS e
            LIMIT 1
        ) AS o ON true
        LEFT JOIN LATERAL (SELECT f.hash FROM definition AS f WHERE f.hash = g.hash OFFSET 0) AS d ON true
        LEFT JOIN LATERAL (
            SELECT o.other FROM unnest(needing, others) AS o (start, other)
            WHERE o.start = g.start AND NOT EXISTS (SELECT FROM execution AS e WHERE e.id = o.other)
            LIMIT 1
        ) AS m ON true
    ), judged AS MATERIALIZED (
        SELECT g.*,
            CASE
                WHEN g.same_id IS NOT NULL THEN 'known'
                WHEN g.used_by IS NOT NULL AND g.used_for <> g.digest THEN 'conflict'
                WHEN g.expires IS NOT NULL THEN 'spent'
                WHEN g.used_by IS NOT NULL THEN 'known'
                WHEN g.leaving THEN 'leaving'
                WHEN g.undefined THEN 'undefined'
                WHEN g.parent IS NOT NULL AND (g.parent_n IS NULL OR g.parent_ending IS NOT NULL) THEN 'orphan'
                WHEN g.over THEN 'over'
                WHEN g.missing IS NOT NULL THEN 'gone'
                ELSE 'written'
            END AS verdict
        FROM given AS g
    ), started AS (
        INSERT INTO execution (id, workflow, hash, at, accepted, parent)
        SELECT j.id, j.workflow, j.hash, j.at, j.accepted, j.parent FROM judged AS j
        WHERE j.verdict = 'written' ORDER BY j.start
        RETURNING n, id
    ), keyed AS (
        INSERT INTO client_key (key, execution, digest, at)
        SELECT j.key, j.id, j.digest, j.at FROM judged AS j WHERE j.verdict = 'written' AND j.key IS NOT NULL
        ON CONFLICT (key) DO UPDATE
        SET execution = excluded.execution, digest = excluded.digest, at = excluded.at, expires = NULL
    ), needed AS (
        INSERT INTO needs (execution, other)
        SELECT j.id, o.other FROM unnest(needing, others) AS o (start, other) JOIN judged AS j ON j.start = o.start
        WHERE j.verdict = 'written'
    ), kept AS (
        INSERT INTO fact (execution, seq, due, node, number, mark, kind, late, path, body)
        SELECT w.n, nextval('fact_seq'), w.due, w.node, w.number, 0, w.kind, false, w.path, w.body
        FROM (
            SELECT s.n, k.* FROM unnest(starts, kinds, nodes, numbers, dues, paths, bodies)
                WITH ORDINALITY AS k (start, kind, node, number, due, path, body, place)
            JOIN judged AS j ON j.start = k.start JOIN started AS s ON s.id = j.id
            ORDER BY k.place
        ) AS w
    ), told AS (
        -- The accepting process activates the execution right away; the row is for the case that it crashes first.
        INSERT INTO outbox (execution, kind, until)
        SELECT j.id, 'start', moment + patience FROM judged AS j WHERE j.verdict = 'written'
        ON CONFLICT DO NOTHING
    )
    SELECT j.start::integer, j.verdict,
        CASE j.verdict WHEN 'spent' THEN j.used_by WHEN 'gone' THEN j.missing END,
        CASE j.verdict WHEN 'known' THEN coalesce(j.same_id, j.under_key) WHEN 'orphan' THEN j.parent_ending END
    FROM judged AS j WHERE j.verdict <> 'written';
END
$$;
