-- next_workflow: the next workflow behind $1 of which something has ended. Changes nothing.
SELECT workflow FROM execution WHERE ended_at IS NOT NULL AND workflow > $1 ORDER BY workflow LIMIT 1
