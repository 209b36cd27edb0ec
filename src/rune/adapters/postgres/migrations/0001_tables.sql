-- Tables. Keys of type text sort by bytes; times are epoch ms; values are bytea, so that the encoding of the database
-- cannot reject the output of a node.

CREATE TABLE definition (
    hash      text COLLATE "C" PRIMARY KEY,
    canonical bytea NOT NULL
);

-- ending: the terminal row, NULL while it runs. parent: the execution that waits for the end of this one. told: whether
-- the end was reported to the parent.
CREATE TABLE execution (
    n         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at        bigint NOT NULL,
    ended_at  bigint,
    told      boolean NOT NULL DEFAULT false,
    id        text COLLATE "C" NOT NULL UNIQUE,
    workflow  text COLLATE "C" NOT NULL,
    hash      text COLLATE "C" NOT NULL,
    status    text COLLATE "C" NOT NULL DEFAULT 'running',
    parent    text COLLATE "C",
    accepted  bytea NOT NULL,
    ending    bytea
);
CREATE INDEX execution_running ON execution (id) WHERE ended_at IS NULL;
CREATE INDEX execution_ended ON execution (workflow, ended_at, n) INCLUDE (status) WHERE ended_at IS NOT NULL;
CREATE INDEX execution_workflow ON execution (workflow, n);
CREATE INDEX execution_status ON execution (status, n);
CREATE INDEX execution_hash ON execution (hash);
CREATE INDEX execution_child ON execution (parent) WHERE parent IS NOT NULL AND NOT told;

-- Numbers of facts. They are assigned one by one under the lock of the execution, so that within an execution their
-- order is the order of the commits. A sequence cache per connection would break that.
CREATE SEQUENCE fact_seq AS bigint CACHE 1;

-- Facts. The primary key makes them write-once: kind, node, path and number identify a fact within its execution.
-- mark: identifies the writer, for one that did not receive the reply.
-- due: a lower bound of when the token of the row is due again; NULL if it waits for no time.
CREATE TABLE fact (
    execution bigint NOT NULL,
    seq       bigint NOT NULL,
    due       bigint,
    node      integer NOT NULL,
    number    integer NOT NULL,
    mark      integer NOT NULL,
    kind      smallint NOT NULL,
    late      boolean NOT NULL,
    path      bytea NOT NULL,
    body      bytea NOT NULL,
    PRIMARY KEY (execution, kind, node, path, number)
);
CREATE INDEX fact_seq_order ON fact (execution, seq);
CREATE INDEX fact_due ON fact (execution, due) WHERE due IS NOT NULL;

CREATE TABLE claim (
    execution   bigint NOT NULL,
    incarnation bigint NOT NULL,
    fence       bigint NOT NULL,
    at          bigint NOT NULL,
    node        integer NOT NULL,
    path        bytea NOT NULL,
    PRIMARY KEY (execution, node, path, incarnation, fence)
);

-- Transactional outbox: work for an execution that was accepted or has ended. body: the message, once it was built.
-- until: no relay takes the row before; extended by the relay that takes it.
CREATE TABLE outbox (
    number    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    until     bigint NOT NULL,
    execution text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL CHECK (kind IN ('start', 'end')),
    body      bytea,
    UNIQUE (execution, kind)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Dead letters: executions that the engine failed. settled: how an operator resolved it, NULL while unresolved.
CREATE TABLE dead_letter (
    at        bigint NOT NULL,
    execution text COLLATE "C" PRIMARY KEY,
    code      text NOT NULL,
    settled   text
);
CREATE INDEX dead_letter_open ON dead_letter (at, execution) WHERE settled IS NULL;

-- Idempotency keys. expires: set when the execution is removed; until then the key cannot be reused.
CREATE TABLE client_key (
    at        bigint NOT NULL,
    expires   bigint,
    key       text COLLATE "C" PRIMARY KEY,
    execution text COLLATE "C" NOT NULL,
    digest    bytea NOT NULL
);
CREATE INDEX client_key_execution ON client_key (execution);
CREATE INDEX client_key_expires ON client_key (expires) WHERE expires IS NOT NULL;

-- Large values are stored uncompressed: compression would cost the server more than the disk space.
CREATE TABLE blob (
    execution text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    data      bytea NOT NULL,
    PRIMARY KEY (execution, key)
);
ALTER TABLE blob ALTER COLUMN data SET STORAGE EXTERNAL;

-- Facts of `execution` reference blobs of `other`, which is therefore not removed before it.
CREATE TABLE needs (
    execution text COLLATE "C" NOT NULL,
    other     text COLLATE "C" NOT NULL,
    PRIMARY KEY (execution, other)
);
CREATE INDEX needs_other ON needs (other);

-- Removed executions with rows that may remain; swept from `until` on. leaving: before that time no start gets the id,
-- because blobs under it are being deleted from an external store.
CREATE TABLE removed (
    n         bigint PRIMARY KEY,
    ended_at  bigint NOT NULL,
    until     bigint NOT NULL,
    leaving   bigint NOT NULL DEFAULT 0,
    id        text COLLATE "C" NOT NULL
);
CREATE INDEX removed_until ON removed (until, n);
CREATE INDEX removed_id ON removed (id);

-- Deployed versions of workflows. Rows are never changed, and version numbers have no gaps.
CREATE TABLE version (
    at        bigint NOT NULL,
    number    integer NOT NULL,
    workflow  text COLLATE "C" NOT NULL,
    hash      text COLLATE "C" NOT NULL,
    name      text NOT NULL,
    PRIMARY KEY (workflow, number),
    UNIQUE (hash, workflow)
);

-- Aliases of versions. revision: number of changes; weights: share of starts in percent, by the number of another
-- version.
CREATE TABLE alias (
    at        bigint NOT NULL,
    number    integer NOT NULL,
    revision  integer NOT NULL DEFAULT 1,
    workflow  text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    weights   jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (workflow, name)
);
CREATE INDEX alias_version ON alias (workflow, number);

-- Workflows. deployed_at: the last deploy; hidden_at: when it was archived, NULL if it is not.
CREATE TABLE workflow (
    deployed_at bigint NOT NULL,
    hidden_at   bigint,
    id          text COLLATE "C" PRIMARY KEY
);

-- Credentials. sealed: the encrypted values, bound to id, type and version; key: name of the key that encrypts them;
-- shown: the summary for lists.
CREATE TABLE credential (
    id         text COLLATE "C" PRIMARY KEY,
    name       text COLLATE "C" NOT NULL UNIQUE,
    type       text NOT NULL,
    version    bigint NOT NULL,
    key        text NOT NULL,
    sealed     bytea NOT NULL,
    shown      bytea NOT NULL,
    created_at bigint NOT NULL,
    changed_at bigint NOT NULL
);
