-- trigger_update: path $2, moment $3 and body $5 of trigger $1, if its revision is still $4. RETURNS a row if it was.
UPDATE workflow_trigger SET path = $2, due = $3, revision = $4 + 1, body = $5
WHERE id = $1 AND revision = $4 RETURNING revision
