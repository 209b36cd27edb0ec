-- accepted: how executions $1 were started, of those that are there. Changes nothing.
SELECT e.id, e.accepted FROM execution AS e WHERE e.id = ANY ($1::text[])
