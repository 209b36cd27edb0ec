-- Version 2: indexes for pages of executions, newest first, and of facts in commit order. `n` is the rowid of
-- `execution`, so each index on that table ends with it.

CREATE INDEX execution_status ON execution (status);
CREATE INDEX execution_workflow ON execution (workflow, status);
CREATE INDEX fact_order ON fact (execution, seq);
