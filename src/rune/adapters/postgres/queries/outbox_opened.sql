-- outbox_opened: drops the starts of executions $1. Twice is once. In the order of their numbers, as above.
DELETE FROM outbox WHERE number IN (
    SELECT number FROM outbox WHERE execution = ANY ($1::text[]) AND kind = 'start' ORDER BY number FOR UPDATE
)
