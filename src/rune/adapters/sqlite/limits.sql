-- Limits on starts, and what they have counted. level: of the bucket of the rate, in parts of a start, at filled_at.
CREATE TABLE start_limit (
    subject   TEXT PRIMARY KEY,
    limits    TEXT NOT NULL,
    level     INTEGER NOT NULL,
    filled_at INTEGER NOT NULL
) WITHOUT ROWID;

-- Executions that a key with a limit has started. Those that have ended go when the next one is counted.
CREATE TABLE limited_start (
    subject   TEXT NOT NULL,
    execution TEXT NOT NULL,
    PRIMARY KEY (subject, execution)
) WITHOUT ROWID;
