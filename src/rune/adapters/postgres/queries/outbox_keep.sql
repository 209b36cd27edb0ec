-- outbox_keep: keeps message $2 for row $1 unless there is one. RETURNS the one that is kept.
UPDATE outbox SET body = coalesce(body, $2) WHERE number = $1 RETURNING body
