-- The transactional outbox.

-- name: outbox_take
-- Take at most $1 free rows for $2 ms; if the relay dies, another takes them after that. Returns number, execution,
-- kind and body, in no order.
WITH moment AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now)
UPDATE outbox AS o SET until = moment.now + $2
FROM moment, (
    SELECT f.number FROM outbox AS f
    WHERE f.until <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    ORDER BY f.number LIMIT $1 FOR UPDATE SKIP LOCKED
) AS free
WHERE o.number = free.number
RETURNING o.number, o.execution, o.kind, o.body

-- name: outbox_keep
-- Store message $2 of row $1 unless it has one. Returns the stored message.
UPDATE outbox SET body = coalesce(body, $2) WHERE number = $1 RETURNING body

-- name: outbox_done
-- Delete rows $1. Idempotent. Rows are locked in the order of their numbers, so that two relays cannot deadlock.
-- Commits without waiting for the disk: after a crash the work is only repeated.
WITH hurried AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
DELETE FROM outbox USING hurried WHERE number IN (
    SELECT number FROM outbox WHERE number = ANY ($1::bigint[]) ORDER BY number FOR UPDATE
)

-- name: outbox_mark_done
-- Delete the rows of executions $1 and kinds $2, element by element. Idempotent. Rows are locked in the order of their
-- numbers, so that two calls cannot deadlock. Commits without waiting for the disk: after a crash the work is only
-- repeated. LATERAL with OFFSET 0 forces an index lookup per row, because the table is small but full of dead rows.
WITH hurried AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
noted AS MATERIALIZED (
    SELECT o.number FROM unnest($1::text[], $2::text[]) AS g (execution, kind)
    CROSS JOIN LATERAL (
        SELECT r.number FROM outbox AS r WHERE r.execution = g.execution AND r.kind = g.kind OFFSET 0
    ) AS o
),
locked AS MATERIALIZED (
    SELECT o.number FROM outbox AS o WHERE o.number = ANY (ARRAY(SELECT n.number FROM noted AS n))
    ORDER BY o.number FOR UPDATE
)
DELETE FROM outbox USING hurried WHERE number = ANY (ARRAY(SELECT l.number FROM locked AS l))

-- name: hook_take
-- Take at most $1 free handlers for $2 ms, twice as long each time and at most for $3 ms; if the process dies, another
-- takes them after that. Returns number, execution, kind, at, tries and body, in no order.
WITH moment AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now)
UPDATE hook AS h SET tries = h.tries + 1, until = moment.now + least($3::bigint, $2::bigint << least(h.tries, 20))
FROM moment, (
    SELECT f.number FROM hook AS f
    WHERE f.until <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint AND f.given_up IS NULL
    ORDER BY f.number LIMIT $1 FOR UPDATE SKIP LOCKED
) AS free
WHERE h.number = free.number
RETURNING h.number, h.execution, h.kind, h.at, h.tries, h.body

-- name: hook_done
-- Delete handlers $1. Idempotent. Rows are locked in the order of their numbers, so that two processes cannot deadlock.
DELETE FROM hook WHERE number IN (
    SELECT number FROM hook WHERE number = ANY ($1::bigint[]) ORDER BY number FOR UPDATE
)

-- name: hook_fail
-- Store why handler $1 could not be started ($2), and since when it is given up ($3; null: it is tried again).
UPDATE hook SET error = $2, given_up = $3 WHERE number = $1

-- name: hook_failed
-- The newest $1 handlers that could not be started. Read-only.
SELECT execution, kind, at, tries, error, given_up, body FROM hook WHERE error <> '' ORDER BY number DESC LIMIT $1

-- name: hook_forget
-- Delete handlers that were given up before $1. Returns a row for each.
DELETE FROM hook WHERE number IN (
    SELECT number FROM hook WHERE given_up < $1 ORDER BY number FOR UPDATE SKIP LOCKED
) RETURNING number

-- name: handler_defaults
-- The handlers of workflows that name none. Read-only.
SELECT body FROM handler_default

-- name: handler_put_defaults
-- Replace the handlers of workflows that name none by $1.
INSERT INTO handler_default (one, body) VALUES (1, $1) ON CONFLICT (one) DO UPDATE SET body = excluded.body

-- name: outbox_backlog
-- The number of rows, and for how many ms the oldest has been free. Read-only.
SELECT count(*),
    greatest(0, (extract(epoch FROM clock_timestamp()) * 1000)::bigint - min(until))
FROM outbox
