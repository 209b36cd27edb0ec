-- outbox_backlog: how many rows there are, and for how many ms the oldest that is free has been lying. Changes nothing.
SELECT count(*),
    greatest(0, (extract(epoch FROM clock_timestamp()) * 1000)::bigint - min(until))
FROM outbox
