-- credential: the credential of id or name $1. Changes nothing.
SELECT id, name, type, version, key, sealed, shown, created_at, changed_at
FROM credential WHERE id = $1 OR name = $1
