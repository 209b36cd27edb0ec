-- Lists by workflow, and by workflow and status, newest first: one index answers both, a workflow alone by reading the
-- newest of each status.

DROP INDEX execution_workflow;
CREATE INDEX execution_workflow ON execution (workflow, status, n);
