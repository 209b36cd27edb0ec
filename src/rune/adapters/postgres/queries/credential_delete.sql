-- credential_delete: forgets credential $1. It stands and falls with the transaction.
DELETE FROM credential WHERE id = $1
