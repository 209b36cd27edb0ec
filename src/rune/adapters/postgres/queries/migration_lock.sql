-- migration_lock: one migrator at a time, and none that makes others queue behind it for long.
-- RETURNS nothing of interest. Ends with the transaction.
SELECT pg_advisory_xact_lock(5935478274560320101), set_config('lock_timeout', '3s', true)
