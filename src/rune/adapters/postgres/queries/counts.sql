-- Counts of ended executions.

-- name: counts_add
-- Store the counts of the period from $1 to $2, if it adjoins the counted ones: workflows $3, statuses $4, counts $5.
-- Returns a row if it does.
WITH extended AS (
    INSERT INTO ended_count_range AS r (one, low, high) VALUES (1, $1, $2)
    ON CONFLICT (one) DO UPDATE SET low = least(r.low, $1), high = greatest(r.high, $2)
    WHERE r.high = $1 OR r.low = $2 RETURNING one
), added AS (
    INSERT INTO ended_count (bucket, workflow, status, count)
    SELECT $1, g.workflow, g.status, g.count
    FROM extended, unnest($3::text[], $4::text[], $5::bigint[]) AS g (workflow, status, count)
)
SELECT one FROM extended
