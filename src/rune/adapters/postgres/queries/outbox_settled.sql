-- outbox_settled: drops what was noted of executions $1 under kinds $2, element by element. Twice is once. In the order
-- of their numbers: two of these never wait for each other. A crash may bring them back, which is why nobody waits for
-- the disk here.
WITH hurried AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
DELETE FROM outbox USING hurried WHERE number IN (
    SELECT o.number FROM outbox AS o JOIN unnest($1::text[], $2::text[]) AS g (execution, kind)
        ON o.execution = g.execution AND o.kind = g.kind
    ORDER BY o.number FOR UPDATE OF o
)
