-- accepted: how execution $1 was started. Changes nothing.
SELECT accepted FROM execution WHERE id = $1
