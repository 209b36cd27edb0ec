-- blob_delete: drops all blobs of execution $1. RETURNS how many.
WITH dropped AS (DELETE FROM blob WHERE execution = $1 RETURNING 1) SELECT count(*) AS count FROM dropped
