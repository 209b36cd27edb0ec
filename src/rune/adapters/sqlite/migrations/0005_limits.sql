-- Version 5: limits on starts. level: level of the token bucket at filled_at, in fractions of a start.
CREATE TABLE start_limit (
    subject   TEXT PRIMARY KEY,
    limits    TEXT NOT NULL,
    level     INTEGER NOT NULL,
    filled_at INTEGER NOT NULL
) WITHOUT ROWID;

-- Executions started with a limited API key. Ended ones are deleted when the next start is counted.
CREATE TABLE limited_start (
    subject   TEXT NOT NULL,
    execution TEXT NOT NULL,
    PRIMARY KEY (subject, execution)
) WITHOUT ROWID;
