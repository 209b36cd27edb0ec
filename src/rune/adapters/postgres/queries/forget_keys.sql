-- forget_keys: drops at most $2 client keys whose time is over by $1. RETURNS how many. Sent again it drops the next.
WITH dropped AS (
    DELETE FROM client_key WHERE key IN (
        SELECT key FROM client_key WHERE expires IS NOT NULL AND expires <= $1 ORDER BY key LIMIT $2
        FOR UPDATE SKIP LOCKED
    ) RETURNING 1
)
SELECT count(*) AS count FROM dropped
