-- key: the key of this id. Changes nothing.
SELECT id, name, role, scopes, digest, created_at, created_by, expires_at, revoked_at, used_at
FROM api_key WHERE id = $1
