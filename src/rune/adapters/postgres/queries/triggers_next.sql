-- triggers_next: when the first schedule has to be looked at; NULL if none has. Changes nothing.
SELECT min(due) AS due FROM workflow_trigger WHERE due IS NOT NULL
