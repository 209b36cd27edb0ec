-- trigger: the one of id $1. Changes nothing.
SELECT body FROM workflow_trigger WHERE id = $1
