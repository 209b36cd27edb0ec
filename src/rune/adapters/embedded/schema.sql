-- Version 1. A later version adds a step to migrations.py; this file is never edited after a release.
-- A crash in between leaves nothing: each step runs in one transaction with its version mark.

CREATE TABLE definition (
    hash      TEXT PRIMARY KEY,
    canonical BLOB NOT NULL
) WITHOUT ROWID;

-- wake_at: not later than when the execution needs attention (epoch ms); NULL once it has ended.
CREATE TABLE execution (
    n         INTEGER PRIMARY KEY,
    id        TEXT NOT NULL UNIQUE,
    workflow  TEXT NOT NULL,
    hash      TEXT NOT NULL,
    status    TEXT NOT NULL DEFAULT 'running',
    at        INTEGER NOT NULL,
    ended_at  INTEGER,
    wake_at   INTEGER,
    accepted  BLOB NOT NULL,
    end       BLOB
);
CREATE INDEX execution_wake ON execution (wake_at, n) WHERE wake_at IS NOT NULL;

CREATE TABLE client_key (
    key       TEXT PRIMARY KEY,
    execution TEXT NOT NULL,
    digest    BLOB NOT NULL,
    at        INTEGER NOT NULL
) WITHOUT ROWID;

-- The facts. The primary key is the write-once rule: kind, node, path and number name a fact within its execution.
CREATE TABLE fact (
    execution INTEGER NOT NULL,
    kind      INTEGER NOT NULL,
    node      INTEGER NOT NULL,
    path      BLOB NOT NULL,
    number    INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    late      INTEGER NOT NULL,
    body      BLOB NOT NULL,
    PRIMARY KEY (execution, kind, node, path, number)
) WITHOUT ROWID;

CREATE TABLE claim (
    execution INTEGER NOT NULL,
    node      INTEGER NOT NULL,
    path      BLOB NOT NULL,
    fence     INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (execution, node, path, fence)
) WITHOUT ROWID;

CREATE TABLE blob (
    execution TEXT NOT NULL,
    key       TEXT NOT NULL,
    data      BLOB NOT NULL,
    PRIMARY KEY (execution, key)
);
