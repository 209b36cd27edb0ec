-- children: executions whose end $1 waits for and that have not ended. Changes nothing.
SELECT id FROM execution WHERE parent = $1 AND NOT told AND ended_at IS NULL ORDER BY n
