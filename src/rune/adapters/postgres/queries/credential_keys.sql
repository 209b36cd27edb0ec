-- credential_keys: how many credentials there are, and the name of a key that seals one. Changes nothing.
SELECT count(*), max(key) FROM credential
