-- What tells a cluster from others.

-- name: cluster_identity
-- The id of the journal, the number of partitions and the prefix; no row before the first start. Read-only. The number of the database
-- is another one in a copy, and so is that of the server on another server, except on its replicas.
SELECT
    journal::text AS journal,
    partitions,
    prefix,
    prefix_of,
    (SELECT oid::text FROM pg_database WHERE datname = current_database()) AS database,
    has_function_privilege('pg_control_system()', 'EXECUTE') AS may_ask
FROM cluster

-- name: server_identity
-- The number that a server got when its files were created. Its replicas have the same one.
SELECT system_identifier::text FROM pg_control_system()

-- name: cluster_create
-- Give the journal an id, unless it has one.
INSERT INTO cluster DEFAULT VALUES ON CONFLICT DO NOTHING

-- name: cluster_settle
-- Record the number $1 of partitions, unless there is one.
UPDATE cluster SET partitions = $1 WHERE partitions IS NULL

-- name: cluster_bind
-- Record the prefix $1 in the database $2. One that was recorded there already stays, unless $3.
UPDATE cluster SET prefix = $1, prefix_of = $2 WHERE $3 OR prefix IS NULL
    OR ($2 <> '' AND prefix_of NOT IN ('', $2))

-- name: state_try
-- Take the lock of the state if no other session has a share of it, and return whether it was taken.
SELECT pg_try_advisory_lock(8243108801)

-- name: state_share
-- Take a share of the lock of the state.
SELECT pg_advisory_lock_shared(8243108801)

-- name: state_release
-- Release the lock of the state; a share of it stays.
SELECT pg_advisory_unlock(8243108801)
