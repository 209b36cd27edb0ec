-- signed_insert: notes under which delivery $3 the mark $2 came for trigger $1, until $4. Write-once.
INSERT INTO signed_delivery (trigger_id, mark, delivery, until) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING
