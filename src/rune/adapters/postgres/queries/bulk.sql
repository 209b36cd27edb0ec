-- Bulk jobs and their executions.

-- name: bulk_create
-- Store job $1 with start $2, status $3, body $4 and the executions $5; delete jobs that are over and began before $6.
-- Nothing is written if the id exists.
WITH over AS (
    DELETE FROM bulk_job WHERE at < $6 AND status <> 'running' RETURNING id
), gone AS (
    DELETE FROM bulk_target WHERE job IN (SELECT id FROM over)
), made AS (
    INSERT INTO bulk_job (id, at, status, leased_until, body) VALUES ($1, $2, $3, 0, $4)
    ON CONFLICT (id) DO NOTHING RETURNING id
)
INSERT INTO bulk_target (job, place, execution)
SELECT m.id, t.place - 1, t.execution FROM made AS m, unnest($5::text[]) WITH ORDINALITY AS t (execution, place)

-- name: bulk_find
-- Job $1. Read-only.
SELECT body, status FROM bulk_job WHERE id = $1

-- name: bulk_list
-- The $1 newest jobs. Read-only.
SELECT body, status FROM bulk_job ORDER BY at DESC, id DESC LIMIT $1

-- name: bulk_counts
-- How many executions of the jobs $1 have each outcome. Read-only.
SELECT job, outcome, count(*) AS count FROM bulk_target WHERE job = ANY ($1::text[]) AND outcome IS NOT NULL
GROUP BY job, outcome

-- name: bulk_claim
-- Reserve the oldest running job whose reservation is over at $1, until $2. Returns its id.
UPDATE bulk_job SET leased_until = $2 WHERE id = (
    SELECT id FROM bulk_job WHERE status = 'running' AND leased_until <= $1 ORDER BY at LIMIT 1 FOR UPDATE SKIP LOCKED
) RETURNING id

-- name: bulk_pending
-- At most $2 executions of job $1 without an outcome, in order. Read-only.
SELECT place, execution FROM bulk_target WHERE job = $1 AND outcome IS NULL ORDER BY place LIMIT $2

-- name: bulk_record
-- Store the outcomes $3 with the bodies $4 at the places $2 of job $1, and extend its reservation until $5.
WITH written AS (
    UPDATE bulk_target AS t SET outcome = g.outcome, body = g.body
    FROM unnest($2::integer[], $3::text[], $4::bytea[]) AS g (place, outcome, body)
    WHERE t.job = $1 AND t.place = g.place AND t.outcome IS NULL
)
UPDATE bulk_job SET leased_until = $5 WHERE id = $1

-- name: bulk_complete
-- End job $1 if all its executions have an outcome. Returns its status.
WITH ended AS (
    UPDATE bulk_job SET status = 'completed' WHERE id = $1 AND status = 'running'
    AND NOT EXISTS (SELECT 1 FROM bulk_target WHERE job = $1 AND outcome IS NULL) RETURNING status
)
SELECT coalesce((SELECT status FROM ended), (SELECT status FROM bulk_job WHERE id = $1), 'aborted') AS status

-- name: bulk_abort
-- Abort job $1. Returns a row if it was running.
UPDATE bulk_job SET status = 'aborted' WHERE id = $1 AND status = 'running' RETURNING id

-- name: bulk_outcomes
-- At most $4 outcomes of job $1 behind place $2, all or those with outcome $3. Read-only.
SELECT body FROM bulk_target WHERE job = $1 AND place > $2 AND outcome IS NOT NULL
AND ($3::text IS NULL OR outcome = $3) ORDER BY place LIMIT $4
