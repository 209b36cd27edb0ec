-- log_write: one more entry. Sent twice it is there once.
INSERT INTO log (id, at, actor, action, target, details, outcome) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (id) DO NOTHING
