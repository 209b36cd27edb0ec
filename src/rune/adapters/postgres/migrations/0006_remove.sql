-- remove_executions: removes those ended executions that are removable now. They are invisible once this commits; one
-- with many rows leaves a row in `removed`, and its rows are removed in pieces.
-- ARGUMENTS: ns and ids of the candidates; now; how long facts may still be written for an ended execution (late);
-- how long an idempotency key outlives its execution (key_life); from how many rows or blobs on it is removed in pieces;
-- and whether each leaves a row in `removed` because its blobs are in an external store.
-- RETURNS one row: the removed ids, and the numbers of removed references to others, facts and blobs.
-- All or nothing of each execution is removed.
CREATE FUNCTION remove_executions(
    ns bigint[], ids text[], now bigint, late bigint, key_life bigint, many_rows integer, many_blobs integer,
    noted boolean
) RETURNS TABLE (gone text[], freed bigint, facts bigint, blobs bigint)
LANGUAGE plpgsql
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    PERFORM pg_advisory_xact_lock(k.key)
    FROM (SELECT DISTINCT hashtextextended(e.id, 0) AS key FROM unnest(ids) AS e (id) ORDER BY key) AS k;

    RETURN QUERY
    WITH free AS MATERIALIZED (
        SELECT x.n, x.id, x.ended_at,
            NOT EXISTS (SELECT FROM fact AS f WHERE f.execution = x.n OFFSET many_rows)
            AND NOT EXISTS (SELECT FROM claim AS c WHERE c.execution = x.n OFFSET many_rows)
            AND NOT EXISTS (SELECT FROM blob AS b WHERE b.execution = x.id OFFSET many_blobs) AS small
        FROM execution AS x
        WHERE x.n = ANY (ns) AND x.ended_at IS NOT NULL
          AND NOT EXISTS (SELECT FROM needs AS d WHERE d.other = x.id AND d.execution <> x.id)
          AND NOT EXISTS (SELECT FROM execution AS p WHERE p.id = x.parent AND p.ended_at IS NULL)
    ), executions AS (
        DELETE FROM execution AS x USING free WHERE x.n = free.n
    ), letters AS (
        DELETE FROM dead_letter AS l USING free WHERE l.execution = free.id
    ), notices AS (
        DELETE FROM outbox AS o USING free WHERE o.execution = free.id
    ), references_gone AS (
        DELETE FROM needs AS d USING free WHERE d.execution = free.id RETURNING 1
    ), spent AS (
        UPDATE client_key AS c SET expires = now + key_life FROM free
        WHERE c.execution = free.id AND c.expires IS NULL
    ), facts_gone AS (
        DELETE FROM fact AS f USING free WHERE free.small AND f.execution = free.n RETURNING 1
    ), claims_gone AS (
        DELETE FROM claim AS c USING free WHERE free.small AND c.execution = free.n
    ), blobs_gone AS (
        DELETE FROM blob AS b USING free WHERE free.small AND b.execution = free.id RETURNING 1
    ), notes AS (
        INSERT INTO removed (n, id, ended_at, until)
        SELECT free.n, free.id, free.ended_at, CASE WHEN free.small AND NOT noted THEN now + late ELSE 0 END
        FROM free WHERE noted OR NOT free.small OR now - free.ended_at < late
    )
    SELECT ARRAY(SELECT free.id FROM free), (SELECT count(*) FROM references_gone),
        (SELECT count(*) FROM facts_gone), (SELECT count(*) FROM blobs_gone);
END
$$;
