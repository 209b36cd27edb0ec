-- Version 13: handlers to start. until: no process takes the row before; extended by the one that takes it.
CREATE TABLE hook (
    number    INTEGER PRIMARY KEY,
    until     INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    execution TEXT NOT NULL,
    kind      TEXT NOT NULL,
    UNIQUE (execution, kind)
);
