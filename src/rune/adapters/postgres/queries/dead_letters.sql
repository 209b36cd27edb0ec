-- dead_letters: at most $2 letters that nobody has settled, newest first, behind letter $1 if it is given.
-- Changes nothing.
SELECT l.execution, l.code, l.at, e.workflow, e.ending
FROM dead_letter AS l JOIN execution AS e ON e.id = l.execution
WHERE l.settled IS NULL AND ($1::text IS NULL OR (l.at, l.execution) <
    (SELECT b.at, b.execution FROM dead_letter AS b WHERE b.execution = $1))
ORDER BY l.at DESC, l.execution DESC LIMIT $2
