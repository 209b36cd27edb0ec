-- trigger_remove: forgets trigger $1, if its revision is still $2. RETURNS a row if it was.
DELETE FROM workflow_trigger WHERE id = $1 AND revision = $2 RETURNING id
