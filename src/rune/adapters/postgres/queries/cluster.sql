-- What tells a cluster from others.

-- name: cluster_identity
-- The id of the journal and the number of partitions; no row before the first start. Read-only.
SELECT journal::text AS journal, partitions FROM cluster

-- name: cluster_create
-- Give the journal an id, unless it has one.
INSERT INTO cluster DEFAULT VALUES ON CONFLICT DO NOTHING

-- name: cluster_settle
-- Record the number $1 of partitions, unless there is one.
UPDATE cluster SET partitions = $1 WHERE partitions IS NULL
