-- Encrypted credentials and their grants.

-- name: credential
-- The credential with id or name $1. Read-only.
SELECT id, name, type, version, key, sealed, shown, created_at, changed_at
FROM credential WHERE id = $1 OR name = $1

-- name: credentials
-- All credentials by name. Read-only.
SELECT id, name, type, version, key, sealed, shown, created_at, changed_at
FROM credential ORDER BY name

-- name: credential_keys
-- The number of credentials and the name of a key that encrypts one of them. Read-only.
SELECT count(*), max(key) FROM credential

-- name: credential_lock
-- Serialise changes of credentials until the transaction ends.
SELECT pg_advisory_xact_lock(5935478274560320102)

-- name: credential_insert
-- Store a new encrypted credential.
INSERT INTO credential (id, name, type, version, key, sealed, shown, created_at, changed_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)

-- name: credential_update
-- Set version $1, key $2, encrypted values $3, summary $4 and change time $5 of credential $6.
UPDATE credential SET version = $1, key = $2, sealed = $3, shown = $4, changed_at = $5 WHERE id = $6

-- name: credential_delete
-- Delete credential $1.
DELETE FROM credential WHERE id = $1

-- name: grants
-- The principals that may use credential $1, if they were ever changed. Read-only.
SELECT whom FROM credential_grant WHERE credential = $1

-- name: grants_put
-- Set the principals that may use credential $1.
INSERT INTO credential_grant (credential, whom) VALUES ($1, $2)
ON CONFLICT (credential) DO UPDATE SET whom = excluded.whom
