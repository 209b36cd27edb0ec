-- Removal of ended executions, unused definitions and expired keys.

-- name: select_candidates
-- At most $7 ended executions of workflow $1 before the cursor ($2, $3), newest first, that lie before the bound ($5,
-- $6) of their status $4, element by element. Read-only.
SELECT e.n, e.id, e.ended_at FROM execution AS e
JOIN unnest($4::text[], $5::bigint[], $6::bigint[]) AS b (status, ended_at, n)
    ON b.status = e.status AND (e.ended_at, e.n) < (b.ended_at, b.n)
WHERE e.workflow = $1 AND e.ended_at IS NOT NULL AND (e.ended_at, e.n) < ($2, $3)
ORDER BY e.ended_at DESC, e.n DESC LIMIT $7

-- name: last_kept
-- End time and number of the ended execution at position $3 (from 0, newest first) of workflow $1 with statuses $2.
-- Read-only.
SELECT ended_at, n FROM execution
WHERE workflow = $1 AND ended_at IS NOT NULL AND status = ANY ($2::text[])
ORDER BY ended_at DESC, n DESC LIMIT 1 OFFSET $3

-- name: count_removable
-- How many of executions $1 could be removed now. Read-only.
SELECT count(*) AS count FROM execution AS x
WHERE x.n = ANY ($1::bigint[]) AND x.ended_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM needs AS d WHERE d.other = x.id AND d.execution <> x.id)
  AND NOT EXISTS (SELECT FROM execution AS p WHERE p.id = x.parent AND p.ended_at IS NULL)

-- name: remove
-- Remove executions; the function documents arguments and result.
SELECT gone, freed, facts, blobs FROM remove_executions($1::bigint[], $2::text[], $3, $4, $5, $6, $7, $8)

-- name: removed
-- At most $2 removed executions whose remaining rows are due for a sweep at $1 and that no other sweep blocks; whether
-- their id is in use again, and their mark. Read-only.
SELECT r.n, r.id, r.leaving, EXISTS (SELECT FROM execution AS e WHERE e.id = r.id) AS reused
FROM removed AS r
WHERE r.until <= $1 AND r.leaving <= extract(epoch FROM clock_timestamp()) * 1000
ORDER BY r.until, r.n LIMIT $2

-- name: id_lock
-- Block starts with id $1 until the transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0))

-- name: block_id
-- Block the id of removed execution $1 for $2 ms, unless it is in use again or another sweep blocks it. Returns the
-- mark. Runs after id_lock, so that a concurrent start is either visible or waits.
UPDATE removed AS r
SET leaving = c.now + $2::bigint
FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now) AS c
WHERE r.n = $1::bigint AND r.leaving <= c.now AND NOT EXISTS (SELECT FROM execution AS e WHERE e.id = r.id)
RETURNING r.leaving

-- name: sweep
-- Remove remaining rows of removed executions; the function documents arguments and result.
SELECT facts, blobs FROM sweep_removed($1::bigint[], $2::bigint[], $3, $4, $5, $6)

-- name: unused_definitions
-- At most $2 hashes after $1 that no execution and no stored version references. Read-only.
SELECT d.hash FROM definition AS d
WHERE d.hash > $1 AND NOT EXISTS (SELECT FROM execution AS e WHERE e.hash = d.hash)
  AND NOT EXISTS (SELECT FROM version AS v WHERE v.hash = d.hash)
ORDER BY d.hash LIMIT $2

-- name: drop_definitions
-- Delete those of definitions $1 that are still unused. Returns how many.
WITH dropped AS (
    DELETE FROM definition AS d
    WHERE d.hash = ANY ($1::text[]) AND NOT EXISTS (SELECT FROM execution AS e WHERE e.hash = d.hash)
      AND NOT EXISTS (SELECT FROM version AS v WHERE v.hash = d.hash)
    RETURNING 1
)
SELECT count(*) FROM dropped

-- name: forget_client_keys
-- Delete at most $2 idempotency keys that have expired at $1. Returns how many.
WITH dropped AS (
    DELETE FROM client_key WHERE key IN (
        SELECT key FROM client_key WHERE expires IS NOT NULL AND expires <= $1 ORDER BY key LIMIT $2
        FOR UPDATE SKIP LOCKED
    ) RETURNING 1
)
SELECT count(*) AS count FROM dropped

-- name: table_owner
-- The user, and the owner of one of tables $1 that the user may not rewrite; no row if it may rewrite all. VACUUM only warns of
-- a table that it may not rewrite. Read-only.
SELECT current_user::text AS this_user, pg_get_userbyid(relowner)::text AS owner
FROM pg_class JOIN pg_database ON datname = current_database()
WHERE relkind = 'r' AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'fact'::regclass)
  AND relname = ANY ($1::text[])
  AND NOT pg_has_role(relowner, 'USAGE')
  AND NOT pg_has_role(datdba, 'USAGE')
  AND NOT CASE
    WHEN current_setting('server_version_num')::int >= 170000 THEN has_table_privilege(pg_class.oid, 'MAINTAIN')
    ELSE false
  END
LIMIT 1

-- name: table_size
-- The size of tables $1 and their indexes on disk, in bytes. Read-only.
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint AS bytes FROM pg_class
WHERE relkind = 'r' AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'fact'::regclass)
  AND relname = ANY ($1::text[])
