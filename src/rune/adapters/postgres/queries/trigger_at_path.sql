-- trigger_at_path: the hook at path $1. Changes nothing.
SELECT body FROM workflow_trigger WHERE path = $1
