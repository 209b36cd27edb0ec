-- blob_put: keeps bytes $3 under key $2 of execution $1. Twice is once.
INSERT INTO blob (execution, key, data) VALUES ($1, $2, $3)
ON CONFLICT (execution, key) DO UPDATE SET data = excluded.data
