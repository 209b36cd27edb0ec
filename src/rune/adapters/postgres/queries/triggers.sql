-- triggers: those of workflow $1, or all if that is NULL. Changes nothing.
SELECT body FROM workflow_trigger WHERE $1::text IS NULL OR workflow = $1 ORDER BY workflow, node
