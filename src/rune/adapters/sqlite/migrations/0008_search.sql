-- Version 8: what executions are searched by besides workflow, status and time: one row per term, such as
-- `label:customer=7`, `principal:key:k1`, `code:HTTP_TIMEOUT`. `n` is the number of the execution.
CREATE TABLE execution_term (
    term TEXT NOT NULL,
    n    INTEGER NOT NULL,
    PRIMARY KEY (term, n)
) WITHOUT ROWID;
CREATE INDEX execution_term_n ON execution_term (n);
CREATE INDEX execution_parent ON execution (parent) WHERE parent IS NOT NULL;

CREATE TRIGGER execution_term_goes AFTER DELETE ON execution BEGIN
    DELETE FROM execution_term WHERE n = old.n;
END;
