-- Workflows of which an execution has to complete in time. due: when the period is over; body: the rest, encoded.
CREATE TABLE expectation (
    workflow text COLLATE "C" PRIMARY KEY,
    due      bigint NOT NULL,
    revision integer NOT NULL,
    body     bytea NOT NULL
);
CREATE INDEX expectation_due ON expectation (due);

-- body: what is missing, encoded; NULL for handlers of an execution.
ALTER TABLE hook ADD COLUMN body bytea;
