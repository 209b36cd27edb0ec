-- The schema version and the server.

-- name: migration_table_exists
-- Whether the table of migrations exists. Read-only.
SELECT to_regclass('rune_migration') IS NOT NULL AS known

-- name: migration_version
-- The number of the last applied migration. Read-only.
SELECT coalesce(max(number), 0) FROM rune_migration

-- name: migration_lock
-- Serialise migrations until the transaction ends. The lock timeout keeps other statements from queueing behind a
-- migration that waits for its locks.
SELECT pg_advisory_xact_lock(5935478274560320101), set_config('lock_timeout', '3s', true)

-- name: migration_table_create
-- Create the table of applied migrations unless it exists.
CREATE TABLE IF NOT EXISTS rune_migration (
    number integer PRIMARY KEY,
    name   text NOT NULL,
    at     timestamptz NOT NULL DEFAULT clock_timestamp()
)

-- name: migration_record
-- Record migration $1 with name $2, in the transaction of the migration.
INSERT INTO rune_migration (number, name) VALUES ($1, $2)

-- name: server_settings
-- The version of the server and whether it waits for the disk. Read-only.
SELECT split_part(current_setting('server_version'), ' ', 1), current_setting('fsync')

-- name: server_version
-- The version of the server as a number and the encoding of the database. Read-only.
SELECT current_setting('server_version_num')::integer, current_setting('server_encoding')

-- name: executions_to_index
-- The next 1,000 executions after number $1. Read-only.
SELECT n, accepted, ending FROM execution WHERE n > $1 ORDER BY n LIMIT 1000

-- name: terms_insert
-- Add term $1 to execution $2, element by element. Idempotent.
INSERT INTO execution_term (term, n) SELECT t.term, t.n FROM unnest($1::text[], $2::bigint[]) AS t (term, n)
ON CONFLICT DO NOTHING

-- name: waiting_terms_insert
-- Add term $1 to the executions in which a node has waited for a signal. Idempotent.
INSERT INTO execution_term (term, n)
SELECT DISTINCT $1::text, e.n FROM execution AS e JOIN fact AS f ON f.execution = e.n AND f.kind = 3
WHERE e.ended_at IS NULL AND position('signal'::bytea IN f.body) > 0
ON CONFLICT DO NOTHING
