-- Version 9: bulk jobs and their executions. leased_until: until then a process works on it; body: what never changes.
CREATE TABLE bulk_job (
    id           TEXT PRIMARY KEY,
    at           INTEGER NOT NULL,
    status       TEXT NOT NULL,
    leased_until INTEGER NOT NULL,
    body         BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX bulk_job_at ON bulk_job (at);
CREATE INDEX bulk_job_running ON bulk_job (leased_until) WHERE status = 'running';

-- outcome: NULL until the execution was processed.
CREATE TABLE bulk_target (
    job       TEXT NOT NULL,
    place     INTEGER NOT NULL,
    execution TEXT NOT NULL,
    outcome   TEXT,
    body      BLOB,
    PRIMARY KEY (job, place)
) WITHOUT ROWID;
CREATE INDEX bulk_target_pending ON bulk_target (job, place) WHERE outcome IS NULL;
