-- credential_lock: one change of credentials at a time. Ends with the transaction.
SELECT pg_advisory_xact_lock(5935478274560320102)
