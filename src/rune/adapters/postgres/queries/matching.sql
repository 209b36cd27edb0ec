-- matching: at most $3 ids from $1 on and before $2. Changes nothing.
SELECT id FROM execution WHERE id >= $1 AND id < $2 ORDER BY id LIMIT $3
