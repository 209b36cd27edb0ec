-- aliases: the aliases of workflow $1 by name; $2: only this one, or NULL for all. Changes nothing.
SELECT a.name, a.number, a.revision, a.weights FROM alias AS a
WHERE a.workflow = $1 AND ($2::text IS NULL OR a.name = $2) ORDER BY a.name
