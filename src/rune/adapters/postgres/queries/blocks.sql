-- Executions that blocked the event loop of a process, and those in quarantine.

-- name: block_add
-- Note that the execution $1 blocks a loop, under the mark $2. It counts in $3 ms, or earlier if it is noted again so.
INSERT INTO loop_block (execution, mark, at)
VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $3::bigint)
ON CONFLICT (execution, mark) DO UPDATE SET at = least(loop_block.at, excluded.at)

-- name: block_remove
-- Forget the mark $2 of the execution $1.
DELETE FROM loop_block WHERE execution = $1 AND mark = $2

-- name: block_quarantine
-- Note that the execution $1 is in quarantine, and the reason $2.
INSERT INTO loop_block (execution, mark, at, reason)
VALUES ($1, '', (extract(epoch FROM clock_timestamp()) * 1000)::bigint, $2)
ON CONFLICT DO NOTHING

-- name: block_list
-- The executions that have not ended: how many of their blocks count, and why they are in quarantine. Read-only.
SELECT b.execution, count(*) FILTER (WHERE b.mark <> '')::integer AS blocks,
    max(b.reason) FILTER (WHERE b.mark = '') AS reason
FROM loop_block AS b
WHERE b.at <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint
  AND EXISTS (SELECT 1 FROM execution AS x WHERE x.id = b.execution AND x.ending IS NULL)
GROUP BY b.execution ORDER BY b.execution

-- name: block_forget
-- Forget all of the execution $1.
DELETE FROM loop_block WHERE execution = $1

-- name: block_tidy
-- Forget the executions that have ended or were removed.
DELETE FROM loop_block AS b
WHERE NOT EXISTS (SELECT 1 FROM execution AS x WHERE x.id = b.execution AND x.ending IS NULL)
