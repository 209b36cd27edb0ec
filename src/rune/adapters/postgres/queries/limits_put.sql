-- limits_put: the limits of $1 from now on, as $2 writes them, with the bucket of their rate. What a rate that stays the
-- same has counted is kept. Sent twice it is the same.
INSERT INTO start_limit (subject, limits, starts, period, burst, running, level, filled_at)
VALUES (
    $1::text, $2::text, $3::bigint, $4::bigint, $5::bigint, $6::bigint, coalesce($5::bigint * $4::bigint, 0),
    extract(epoch FROM clock_timestamp()) * 1000
)
ON CONFLICT (subject) DO UPDATE SET
    limits = excluded.limits, starts = excluded.starts, period = excluded.period, burst = excluded.burst,
    running = excluded.running,
    level = CASE
        WHEN (start_limit.starts, start_limit.period, start_limit.burst)
            IS NOT DISTINCT FROM (excluded.starts, excluded.period, excluded.burst)
        THEN start_limit.level ELSE excluded.level
    END,
    filled_at = CASE
        WHEN (start_limit.starts, start_limit.period, start_limit.burst)
            IS NOT DISTINCT FROM (excluded.starts, excluded.period, excluded.burst)
        THEN start_limit.filled_at ELSE excluded.filled_at
    END
