-- Triggers and webhook deliveries.

-- name: trigger
-- The trigger with id $1. Read-only.
SELECT body FROM workflow_trigger WHERE id = $1

-- name: trigger_at_path
-- The webhook at path $1. Read-only.
SELECT body FROM workflow_trigger WHERE path = $1

-- name: triggers
-- The triggers of workflow $1, all if it is NULL. Read-only.
SELECT body FROM workflow_trigger WHERE $1::text IS NULL OR workflow = $1 ORDER BY workflow, node

-- name: triggers_due
-- At most $2 schedules that are due at $1, longest due first. Read-only.
SELECT body FROM workflow_trigger WHERE due <= $1 ORDER BY due LIMIT $2

-- name: triggers_next_due
-- When the next schedule is due, NULL if there is none. Read-only.
SELECT min(due) AS due FROM workflow_trigger WHERE due IS NOT NULL

-- name: trigger_insert
-- Store a new trigger. Returns a row if it was written, none if the id exists.
INSERT INTO workflow_trigger (id, workflow, node, path, due, revision, body) VALUES ($1, $2, $3, $4, $5, 1, $6)
ON CONFLICT (id) DO NOTHING RETURNING revision

-- name: trigger_update
-- Set path $2, due time $3 and body $5 of trigger $1 if its revision is still $4. Returns a row if it was.
UPDATE workflow_trigger SET path = $2, due = $3, revision = $4 + 1, body = $5
WHERE id = $1 AND revision = $4 RETURNING revision

-- name: trigger_remove
-- Delete trigger $1 if its revision is still $2. Returns a row if it was.
DELETE FROM workflow_trigger WHERE id = $1 AND revision = $2 RETURNING id

-- name: delivery
-- The delivery that first used signature mark $2 of trigger $1. Read-only.
SELECT delivery FROM signed_delivery WHERE trigger_id = $1 AND mark = $2

-- name: delivery_insert
-- Record that delivery $3 used signature mark $2 of trigger $1, until $4. The first record stays.
INSERT INTO signed_delivery (trigger_id, mark, delivery, until) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING

-- name: deliveries_forget
-- Delete records of deliveries whose signature is no longer valid at $1. Returns how many.
WITH gone AS (DELETE FROM signed_delivery WHERE until < $1 RETURNING 1) SELECT count(*) AS dropped FROM gone
