-- key_insert: a new key of the API. Sent twice it is there once.
INSERT INTO api_key (id, name, role, scopes, digest, created_at, created_by, expires_at, revoked_at, used_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (id) DO NOTHING
