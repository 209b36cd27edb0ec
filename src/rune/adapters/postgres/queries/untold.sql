-- untold: at most $1 children that have ended without their parent knowing, or whose parent has ended without them.
-- Changes nothing.
SELECT child.id FROM execution AS child LEFT JOIN execution AS parent ON parent.id = child.parent
WHERE child.parent IS NOT NULL AND NOT child.told
  AND (child.ended_at IS NOT NULL OR parent.id IS NULL OR parent.ended_at IS NOT NULL)
LIMIT $1
