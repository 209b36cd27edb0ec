-- Version 1. Later versions add a step to STEPS in database.py; statements in this file must not change after a release.
-- Each step runs in one transaction with its version number, so a crash leaves no partial schema.

CREATE TABLE definition (
    hash      TEXT PRIMARY KEY,
    canonical BLOB NOT NULL
) WITHOUT ROWID;

-- One row: how often the file was opened for writing. The upper bits of the numbers of facts and fences are this count.
CREATE TABLE opening (
    one   INTEGER PRIMARY KEY CHECK (one = 1),
    count INTEGER NOT NULL
);

-- wake_at: when the execution has to be loaded at the latest (epoch ms); NULL once it has ended.
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
    end       BLOB,
    parent    TEXT,
    told      INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX execution_wake ON execution (wake_at, n) WHERE wake_at IS NOT NULL;
CREATE INDEX execution_ended ON execution (workflow, ended_at, n, status) WHERE ended_at IS NOT NULL;
CREATE INDEX execution_hash ON execution (hash);
-- parent: the execution that waits for this one; told: the end was delivered to it. Recovery reads only this index.
CREATE INDEX execution_child ON execution (parent) WHERE parent IS NOT NULL AND told = 0;

-- Executions that the engine ended because it could not process a token; settled: how an operator resolved it.
CREATE TABLE dead_letter (
    execution TEXT PRIMARY KEY,
    code      TEXT NOT NULL,
    at        INTEGER NOT NULL,
    settled   TEXT
) WITHOUT ROWID;

CREATE TABLE client_key (
    key       TEXT PRIMARY KEY,
    execution TEXT NOT NULL,
    digest    BLOB NOT NULL,
    at        INTEGER NOT NULL,
    expires   INTEGER
) WITHOUT ROWID;
CREATE INDEX client_key_execution ON client_key (execution);
-- expires: set when the execution is removed; until then the key cannot be reused.
CREATE INDEX client_key_expires ON client_key (expires) WHERE expires IS NOT NULL;

-- The primary key makes facts write-once: kind, node, path and number identify a fact within its execution.
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

-- Facts of `execution` refer to blobs of `other`, so retention keeps `other` as long as `execution`.
CREATE TABLE needs (
    execution TEXT NOT NULL,
    other     TEXT NOT NULL,
    PRIMARY KEY (execution, other)
) WITHOUT ROWID;
CREATE INDEX needs_other ON needs (other);

-- Removed executions of which some rows may remain; retention deletes them from `until` on (epoch ms).
CREATE TABLE removed (
    n         INTEGER PRIMARY KEY,
    id        TEXT NOT NULL,
    ended_at  INTEGER NOT NULL,
    until     INTEGER NOT NULL
);
CREATE INDEX removed_until ON removed (until);

-- Deployed versions of workflows. Rows are never changed, and numbers have no gaps.
CREATE TABLE version (
    workflow  TEXT NOT NULL,
    number    INTEGER NOT NULL,
    hash      TEXT NOT NULL,
    name      TEXT NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (workflow, number),
    UNIQUE (hash, workflow)
) WITHOUT ROWID;
CREATE INDEX version_hash ON version (hash);

-- Names that point at versions. `revision` counts changes; `weights` is JSON: other version numbers, and the percentage
-- of starts that each of them gets.
CREATE TABLE alias (
    workflow  TEXT NOT NULL,
    name      TEXT NOT NULL,
    number    INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    revision  INTEGER NOT NULL,
    weights   TEXT NOT NULL,
    PRIMARY KEY (workflow, name)
) WITHOUT ROWID;

-- deployed_at: time of the last deploy; hidden_at: when it was archived; NULL if it is not.
CREATE TABLE workflow (
    id          TEXT PRIMARY KEY,
    deployed_at INTEGER NOT NULL,
    hidden_at   INTEGER
) WITHOUT ROWID;

-- `sealed` is encrypted with the key named in `key` and authenticates id, type and version; `shown` is the unencrypted
-- part for lists.
CREATE TABLE credential (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    type       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    key        TEXT NOT NULL,
    sealed     BLOB NOT NULL,
    shown      BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) WITHOUT ROWID;
