-- Lists by workflow and by workflow and status, newest first: one index serves both, because a list of a workflow reads
-- the newest executions of each status.

DROP INDEX execution_workflow;
CREATE INDEX execution_workflow ON execution (workflow, status, n);
