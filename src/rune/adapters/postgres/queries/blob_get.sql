-- blob_get: the bytes under key $2 of execution $1. Changes nothing.
SELECT data FROM blob WHERE execution = $1 AND key = $2
