-- log_read: entries before number $1, newest first, at most $5: of actor $2, of action $3 or whose first word it is,
-- and about target $4, each unless NULL. Changes nothing.
SELECT number, id, at, actor, action, target, details, outcome FROM log
WHERE number < $1
    AND ($2::text IS NULL OR actor = $2)
    AND ($3::text IS NULL OR action = $3 OR starts_with(action, $3 || '.'))
    AND ($4::text IS NULL OR target = $4)
ORDER BY number DESC LIMIT $5
