-- Version 1. A later version adds a step to migrations.py; this file is never edited after a release.
-- A crash in between leaves nothing: each step runs in one transaction with its version mark.

CREATE TABLE definition (
    hash      TEXT PRIMARY KEY,
    canonical BLOB NOT NULL
) WITHOUT ROWID;

-- One row: how often the file was opened for writing. Numbers of facts begin anew, and higher, each time.
CREATE TABLE opening (
    one   INTEGER PRIMARY KEY CHECK (one = 1),
    count INTEGER NOT NULL
);

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
    end       BLOB,
    parent    TEXT,
    told      INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX execution_wake ON execution (wake_at, n) WHERE wake_at IS NOT NULL;
CREATE INDEX execution_ended ON execution (workflow, ended_at, n, status) WHERE ended_at IS NOT NULL;
CREATE INDEX execution_hash ON execution (hash);
-- parent: who waits for this one's end and is told of it once; the ones below are all that recovery has to look at.
CREATE INDEX execution_child ON execution (parent) WHERE parent IS NOT NULL AND told = 0;

-- Executions that ended because the engine could do no more; settled once somebody has requeued or dropped them.
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
-- expires: set when the execution is removed; the key is spent until then.
CREATE INDEX client_key_expires ON client_key (expires) WHERE expires IS NOT NULL;

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

-- Facts of `execution` name blobs of `other`, which therefore stays as long as it does.
CREATE TABLE needs (
    execution TEXT NOT NULL,
    other     TEXT NOT NULL,
    PRIMARY KEY (execution, other)
) WITHOUT ROWID;
CREATE INDEX needs_other ON needs (other);

-- Executions that are off the list while rows of them may be left; to be looked at from `until` on (epoch ms).
CREATE TABLE removed (
    n         INTEGER PRIMARY KEY,
    id        TEXT NOT NULL,
    ended_at  INTEGER NOT NULL,
    until     INTEGER NOT NULL
);
CREATE INDEX removed_until ON removed (until);

-- Stored definitions: what was deployed as which version. A row is never changed, and numbers have no gaps.
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

-- Names that point at versions. `revision` counts how often one was changed; `weights` is JSON: percent of the starts by
-- the number of another version.
CREATE TABLE alias (
    workflow  TEXT NOT NULL,
    name      TEXT NOT NULL,
    number    INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    revision  INTEGER NOT NULL,
    weights   TEXT NOT NULL,
    PRIMARY KEY (workflow, name)
) WITHOUT ROWID;

-- deployed_at: the last time; hidden_at: NULL while it is in sight.
CREATE TABLE workflow (
    id          TEXT PRIMARY KEY,
    deployed_at INTEGER NOT NULL,
    hidden_at   INTEGER
) WITHOUT ROWID;

-- Credentials. `sealed` is opened by the key named beside it and is bound to id, type and version; `shown` is for lists.
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
