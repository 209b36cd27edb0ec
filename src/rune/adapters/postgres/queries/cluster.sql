-- What tells a cluster from others.

-- name: cluster_identity
-- The id of the journal and the number of partitions; no row before the first start. Read-only. The number of the database
-- is another one in a copy, and so is that of the server on another server, except on its replicas.
SELECT
    journal::text AS journal,
    partitions,
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
