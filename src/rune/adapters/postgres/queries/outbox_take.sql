-- outbox_take: takes at most $1 rows that nobody has in hand for $2 ms. A relay that dies leaves them to the next.
-- RETURNS number, execution, kind and body, in no order.
WITH moment AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now)
UPDATE outbox AS o SET until = moment.now + $2
FROM moment, (
    SELECT f.number FROM outbox AS f
    WHERE f.until <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    ORDER BY f.number LIMIT $1 FOR UPDATE SKIP LOCKED
) AS free
WHERE o.number = free.number
RETURNING o.number, o.execution, o.kind, o.body
