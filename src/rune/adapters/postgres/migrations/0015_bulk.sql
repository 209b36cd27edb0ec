-- Bulk jobs and their executions. leased_until: until then a process works on it; body: what never changes; outcome: NULL
-- until the execution was processed.

CREATE TABLE bulk_job (
    at           bigint NOT NULL,
    leased_until bigint NOT NULL,
    id           text COLLATE "C" PRIMARY KEY,
    status       text COLLATE "C" NOT NULL,
    body         bytea NOT NULL
);
CREATE INDEX bulk_job_at ON bulk_job (at);
CREATE INDEX bulk_job_running ON bulk_job (leased_until) WHERE status = 'running';

CREATE TABLE bulk_target (
    place     integer NOT NULL,
    job       text COLLATE "C" NOT NULL,
    execution text COLLATE "C" NOT NULL,
    outcome   text COLLATE "C",
    body      bytea,
    PRIMARY KEY (job, place)
);
CREATE INDEX bulk_target_pending ON bulk_target (job, place) WHERE outcome IS NULL;
