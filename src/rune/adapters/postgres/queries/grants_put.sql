-- grants_put: who may use credential $1 from now on. It stands and falls with the transaction.
INSERT INTO credential_grant (credential, whom) VALUES ($1, $2)
ON CONFLICT (credential) DO UPDATE SET whom = excluded.whom
