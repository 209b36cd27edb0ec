-- hide: takes workflow $1 out of sight at $2. RETURNS a row if there is such a workflow: whether it was in sight.
WITH hid AS (
    UPDATE workflow SET hidden_at = $2 WHERE id = $1 AND hidden_at IS NULL RETURNING id
)
SELECT EXISTS (SELECT FROM hid) AS hid FROM workflow WHERE id = $1
