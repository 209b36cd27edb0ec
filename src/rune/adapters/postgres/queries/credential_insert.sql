-- credential_insert: a new credential, sealed. It stands and falls with the transaction.
INSERT INTO credential (id, name, type, version, key, sealed, shown, created_at, changed_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
