-- endings: the terminal rows of executions $1 that have one. Changes nothing.
SELECT e.id, e.ending FROM execution AS e WHERE e.id = ANY ($1::text[]) AND e.ending IS NOT NULL
