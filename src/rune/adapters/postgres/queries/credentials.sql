-- credentials: all of them by name. Changes nothing.
SELECT id, name, type, version, key, sealed, shown, created_at, changed_at
FROM credential ORDER BY name
