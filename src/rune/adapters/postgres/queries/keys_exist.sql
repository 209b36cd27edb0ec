-- keys_exist: whether a key was ever made. Changes nothing.
SELECT EXISTS (SELECT FROM api_key) AS found
