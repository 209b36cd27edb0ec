-- last_kept: when number $3 (from 0) of the newest executions of workflow $1 with statuses $2 ended, and its number.
-- Changes nothing.
SELECT ended_at, n FROM execution
WHERE workflow = $1 AND ended_at IS NOT NULL AND status = ANY ($2::text[])
ORDER BY ended_at DESC, n DESC LIMIT 1 OFFSET $3
