-- key_revoke: key $1 opens nothing from $2 on. Sent twice, the first time counts.
UPDATE api_key SET revoked_at = coalesce(revoked_at, $2) WHERE id = $1
RETURNING id, name, role, scopes, digest, created_at, created_by, expires_at, revoked_at, used_at
