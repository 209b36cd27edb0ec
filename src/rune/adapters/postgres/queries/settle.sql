-- settle: letter $1 was dealt with as $2. RETURNS a row if it was open.
UPDATE dead_letter SET settled = $2 WHERE execution = $1 AND settled IS NULL RETURNING execution
