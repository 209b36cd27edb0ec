-- key_used: key $1 was used at $2. Sent twice it does no harm.
UPDATE api_key SET used_at = $2 WHERE id = $1
