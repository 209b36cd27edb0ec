-- API keys, audit log, start limits and database privileges.

-- name: api_key
-- The API key with id $1. Read-only.
SELECT id, name, role, scopes, digest, created_at, created_by, expires_at, revoked_at, used_at
FROM api_key WHERE id = $1

-- name: api_keys
-- All API keys, oldest first. Read-only.
SELECT id, name, role, scopes, digest, created_at, created_by, expires_at, revoked_at, used_at
FROM api_key ORDER BY created_at, id

-- name: api_keys_exist
-- Whether an API key was ever created. Read-only.
SELECT EXISTS (SELECT FROM api_key) AS found

-- name: api_key_insert
-- Store a new API key. Idempotent.
INSERT INTO api_key (id, name, role, scopes, digest, created_at, created_by, expires_at, revoked_at, used_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (id) DO NOTHING

-- name: api_key_revoke
-- Revoke API key $1 at $2. If it is revoked already, the earlier time stays.
UPDATE api_key SET revoked_at = coalesce(revoked_at, $2) WHERE id = $1
RETURNING id, name, role, scopes, digest, created_at, created_by, expires_at, revoked_at, used_at

-- name: api_key_mark_used
-- Record that API key $1 was used at $2. Idempotent.
UPDATE api_key SET used_at = $2 WHERE id = $1

-- name: session_insert
-- Store a browser session and remove the expired ones. Idempotent.
WITH expired AS (DELETE FROM session WHERE expires_at <= $4)
INSERT INTO session (id, principal, proof, created_at, expires_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (id) DO NOTHING

-- name: session_find
-- The browser session with id $1. Read-only.
SELECT id, principal, proof, created_at, expires_at FROM session WHERE id = $1

-- name: session_remove
-- Remove browser session $1. Idempotent.
DELETE FROM session WHERE id = $1

-- name: audit_write
-- Append an entry to the audit log. Idempotent. Writers wait for each other, so that the order of numbers is the order of
-- commits and whoever follows the log misses none.
WITH alone AS MATERIALIZED (SELECT pg_advisory_xact_lock(5935478274560320102))
INSERT INTO log (id, at, actor, action, target, details, outcome, address, request)
SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9 FROM alone
ON CONFLICT (id) DO NOTHING

-- name: audit_read
-- At most $5 audit entries before number $1, newest first, with actor $2, action or action group $3 and target $4,
-- each unless NULL. Read-only.
SELECT number, id, at, actor, action, target, details, outcome, address, request FROM log
WHERE number < $1
    AND ($2::text IS NULL OR actor = $2)
    AND ($3::text IS NULL OR action = $3 OR starts_with(action, $3 || '.'))
    AND ($4::text IS NULL OR target = $4)
ORDER BY number DESC LIMIT $5

-- name: audit_follow
-- At most $5 audit entries after number $1, oldest first; otherwise as audit_read. Read-only.
SELECT number, id, at, actor, action, target, details, outcome, address, request FROM log
WHERE number > $1
    AND ($2::text IS NULL OR actor = $2)
    AND ($3::text IS NULL OR action = $3 OR starts_with(action, $3 || '.'))
    AND ($4::text IS NULL OR target = $4)
ORDER BY number LIMIT $5

-- name: start_limits
-- All start limits. Read-only.
SELECT subject, limits FROM start_limit ORDER BY subject

-- name: start_limits_put
-- Set the limits of subject $1 to $2, with the token bucket of their rate ($3, $4, $5) and the concurrency limit $6.
-- An unchanged rate keeps its current level. Idempotent.
INSERT INTO start_limit (subject, limits, starts, period, burst, running, level, filled_at)
VALUES (
    $1::text, $2::text, $3::bigint, $4::bigint, $5::bigint, $6::bigint, coalesce($5::bigint * $4::bigint, 0),
    extract(epoch FROM clock_timestamp()) * 1000
)
ON CONFLICT (subject) DO UPDATE SET
    limits = excluded.limits, starts = excluded.starts, period = excluded.period, burst = excluded.burst,
    running = excluded.running,
    level = CASE
        WHEN (start_limit.starts, start_limit.period, start_limit.burst)
            IS NOT DISTINCT FROM (excluded.starts, excluded.period, excluded.burst)
        THEN start_limit.level ELSE excluded.level
    END,
    filled_at = CASE
        WHEN (start_limit.starts, start_limit.period, start_limit.burst)
            IS NOT DISTINCT FROM (excluded.starts, excluded.period, excluded.burst)
        THEN start_limit.filled_at ELSE excluded.filled_at
    END

-- name: start_limits_remove
-- Remove the limits of subject $1. Idempotent.
DELETE FROM start_limit WHERE subject = $1

-- name: table_privileges
-- What the current user may do with each table: the letters of SELECT, INSERT, UPDATE and DELETE, and whether it owns
-- the table. Read-only.
SELECT c.relname,
    concat(
        CASE WHEN has_table_privilege(c.oid, 'SELECT') THEN 'r' END,
        CASE WHEN has_table_privilege(c.oid, 'INSERT') THEN 'a' END,
        CASE WHEN has_table_privilege(c.oid, 'UPDATE') THEN 'w' END,
        CASE WHEN has_table_privilege(c.oid, 'DELETE') THEN 'd' END
    ),
    pg_has_role(c.relowner, 'USAGE')
FROM pg_class AS c
WHERE c.relkind IN ('r', 'p') AND c.relnamespace = to_regnamespace(current_schema())

-- name: existing_roles
-- Those of roles $1 that exist. Read-only.
SELECT rolname FROM pg_roles WHERE rolname = ANY ($1::text[])

-- name: session
-- The current user, whether it may create tables here, and the server's time in epoch ms. Read-only.
SELECT current_user::text, coalesce(has_schema_privilege(current_schema(), 'CREATE'), false),
    (extract(epoch FROM clock_timestamp()) * 1000)::bigint
