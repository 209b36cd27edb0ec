-- outbox_settled: drops what was noted of executions $1 under kinds $2, element by element. Twice is once. In the order
-- of their numbers: two of these never wait for each other. A crash may bring them back, which is why nobody waits for
-- the disk here. Each row is looked up (LATERAL … OFFSET 0): the table is small and full of what is gone.
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
