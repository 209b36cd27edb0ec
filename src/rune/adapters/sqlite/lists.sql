-- Version 2: pages. What is listed, newest first, and the facts of an execution in commit order are read along an
-- index, however many there are. `n` is the key of `execution`, so each index on that table ends with it.

CREATE INDEX execution_status ON execution (status);
CREATE INDEX execution_workflow ON execution (workflow, status);
CREATE INDEX fact_order ON fact (execution, seq);
