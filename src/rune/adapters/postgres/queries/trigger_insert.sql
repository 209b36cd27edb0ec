-- trigger_insert: a new trigger. RETURNS a row if it was written, none if there is one of this id.
INSERT INTO workflow_trigger (id, workflow, node, path, due, revision, body) VALUES ($1, $2, $3, $4, $5, 1, $6)
ON CONFLICT (id) DO NOTHING RETURNING revision
