-- Version 6: the text that a version was deployed with, by whom, and a note. Versions of earlier schemas have no row.
CREATE TABLE version_source (
    workflow   TEXT NOT NULL,
    number     INTEGER NOT NULL,
    principal  TEXT,
    note       TEXT NOT NULL,
    media_type TEXT,
    data       BLOB,
    PRIMARY KEY (workflow, number)
) WITHOUT ROWID;
