-- execution: one execution as lists show it. Changes nothing.
SELECT id, workflow, hash, status, at, ended_at, accepted, ending FROM execution WHERE id = $1
