-- credential_update: version $1, key $2, seal $3, list entry $4 and moment $5 of credential $6. It stands and falls with
-- the transaction.
UPDATE credential SET version = $1, key = $2, sealed = $3, shown = $4, changed_at = $5 WHERE id = $6
