-- Workflows of which an execution has to complete in time. due: when the period is over; body: the rest, encoded.
CREATE TABLE expectation (
    workflow TEXT PRIMARY KEY,
    due      INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    body     BLOB NOT NULL
);
CREATE INDEX expectation_due ON expectation (due);
-- body: what is missing, encoded; NULL for handlers of an execution.
ALTER TABLE hook ADD COLUMN body BLOB;
