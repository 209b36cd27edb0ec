-- outbox_done: drops rows $1. Twice is once. In the order of their numbers: two relays never wait for each other.
DELETE FROM outbox WHERE number IN (SELECT number FROM outbox WHERE number = ANY ($1::bigint[]) ORDER BY number FOR UPDATE)
