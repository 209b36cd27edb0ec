-- change: how much was ever written here; it differs when somebody has written since. Changes nothing.
SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint AS written
