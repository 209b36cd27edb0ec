-- outbox_done: drops rows $1. Twice is once. In the order of their numbers: two relays never wait for each other. A
-- crash may bring them back, which is why nobody waits for the disk here.
WITH hurried AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
DELETE FROM outbox USING hurried WHERE number IN (
    SELECT number FROM outbox WHERE number = ANY ($1::bigint[]) ORDER BY number FOR UPDATE
)
