-- triggers_due: schedules to be looked at by $1, the longest due first, at most $2. Changes nothing.
SELECT body FROM workflow_trigger WHERE due <= $1 ORDER BY due LIMIT $2
