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
-- Store a new trigger, and the row of a handler: name $7, time $8 and body $9, NULL for none. Returns a row if it was
-- written, none if the id exists.
WITH written AS (
    INSERT INTO workflow_trigger (id, workflow, node, path, due, revision, body) VALUES ($1, $2, $3, $4, $5, 1, $6)
    ON CONFLICT (id) DO NOTHING RETURNING revision
), told AS (
    INSERT INTO hook (execution, kind, at, until, body)
    SELECT $7, 'missing', $8::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, $9::bytea
    FROM written WHERE $7::text IS NOT NULL ON CONFLICT DO NOTHING
)
SELECT revision FROM written

-- name: trigger_update
-- Set path $2, due time $3 and body $5 of trigger $1 if its revision is still $4, and write the row of a handler: name
-- $6, time $7 and body $8, NULL for none. Returns a row if it was.
WITH written AS (
    UPDATE workflow_trigger SET path = $2, due = $3, revision = $4 + 1, body = $5
    WHERE id = $1 AND revision = $4 RETURNING revision
), told AS (
    INSERT INTO hook (execution, kind, at, until, body)
    SELECT $6, 'missing', $7::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, $8::bytea
    FROM written WHERE $6::text IS NOT NULL ON CONFLICT DO NOTHING
)
SELECT revision FROM written

-- name: trigger_remove
-- Delete trigger $1 if its revision is still $2. Returns a row if it was.
DELETE FROM workflow_trigger WHERE id = $1 AND revision = $2 RETURNING id

-- name: expectation
-- The expectation of workflow $1. Read-only.
SELECT body FROM expectation WHERE workflow = $1

-- name: expectations
-- All expectations by workflow. Read-only.
SELECT body FROM expectation ORDER BY workflow

-- name: expectations_due
-- At most $2 expectations whose period is over at $1, longest due first. Read-only.
SELECT body FROM expectation WHERE due <= $1 ORDER BY due LIMIT $2

-- name: expectation_insert
-- Store a new expectation with due time $2 and body $3, and the row of a handler: name $4, time $5 and body $6, NULL for
-- none. Returns a row if it was written, none if workflow $1 has one.
WITH written AS (
    INSERT INTO expectation (workflow, due, revision, body) VALUES ($1, $2, 1, $3)
    ON CONFLICT (workflow) DO NOTHING RETURNING revision
), told AS (
    INSERT INTO hook (execution, kind, at, until, body)
    SELECT $4, 'missing', $5::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, $6::bytea
    FROM written WHERE $4::text IS NOT NULL ON CONFLICT DO NOTHING
)
SELECT revision FROM written

-- name: expectation_update
-- Set due time $2 and body $4 of the expectation of workflow $1 if its revision is still $3, and write the row of a
-- handler: name $5, time $6 and body $7, NULL for none. Returns a row if it was.
WITH written AS (
    UPDATE expectation SET due = $2, revision = $3 + 1, body = $4
    WHERE workflow = $1 AND revision = $3 RETURNING revision
), told AS (
    INSERT INTO hook (execution, kind, at, until, body)
    SELECT $5, 'missing', $6::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint, $7::bytea
    FROM written WHERE $5::text IS NOT NULL ON CONFLICT DO NOTHING
)
SELECT revision FROM written

-- name: expectation_remove
-- Delete the expectation of workflow $1 if its revision is still $2. Returns a row if it was.
DELETE FROM expectation WHERE workflow = $1 AND revision = $2 RETURNING workflow

-- name: last_completed
-- At most $5 completed executions of workflow $1 that ended after $2 and before the cursor ($3, $4), newest first.
-- Read-only.
SELECT ended_at, n, accepted FROM execution
WHERE workflow = $1 AND ended_at IS NOT NULL AND ended_at > $2 AND status = 'completed' AND (ended_at, n) < ($3, $4)
ORDER BY ended_at DESC, n DESC LIMIT $5

-- name: delivery
-- The delivery that first used signature mark $2 of trigger $1. Read-only.
SELECT delivery FROM signed_delivery WHERE trigger_id = $1 AND mark = $2

-- name: delivery_insert
-- Record that delivery $3 used signature mark $2 of trigger $1, until $4. The first record stays.
INSERT INTO signed_delivery (trigger_id, mark, delivery, until) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING

-- name: deliveries_forget
-- Delete records of deliveries whose signature is no longer valid at $1. Returns how many.
WITH gone AS (DELETE FROM signed_delivery WHERE until < $1 RETURNING 1) SELECT count(*) AS dropped FROM gone
