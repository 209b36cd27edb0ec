-- keys: all of them, the oldest first. Changes nothing.
SELECT id, name, role, scopes, digest, created_at, created_by, expires_at, revoked_at, used_at
FROM api_key ORDER BY created_at, id
