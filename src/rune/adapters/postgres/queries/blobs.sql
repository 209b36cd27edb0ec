-- Blobs of executions.

-- name: blob_put
-- Store bytes $3 under key $2 of execution $1. Idempotent.
INSERT INTO blob (execution, key, data) VALUES ($1, $2, $3)
ON CONFLICT (execution, key) DO UPDATE SET data = excluded.data

-- name: write_check
-- Fails if the database is read-only. Changes nothing.
UPDATE blob SET data = data WHERE execution = '' AND key = ''

-- name: write_probe
-- Store a page of bytes under key $1, which fails if the disk is full. The caller rolls it back.
INSERT INTO blob (execution, key, data) VALUES ('', $1, decode(repeat('00', 8192), 'hex'))

-- name: blob_get
-- The bytes under key $2 of execution $1. Read-only.
SELECT data FROM blob WHERE execution = $1 AND key = $2

-- name: blob_delete
-- Delete all blobs of execution $1. Returns how many.
WITH dropped AS (DELETE FROM blob WHERE execution = $1 RETURNING 1) SELECT count(*) AS count FROM dropped
