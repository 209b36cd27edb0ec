-- The tables. Text that is a key sorts by its bytes; times are epoch ms; values are bytes, so that nothing a
-- node says can be refused by the encoding of the database.

CREATE TABLE definition (
    hash      text COLLATE "C" PRIMARY KEY,
    canonical bytea NOT NULL
);

-- ending: the terminal row, NULL while it runs. parent: who waits for this one's end and is told of it once.
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

-- Numbers of facts. They are given out under the lock of the execution, one by one: within an execution their order
-- is the order of the commits. A cache of numbers per connection would break that.
CREATE SEQUENCE fact_seq AS bigint CACHE 1;

-- The facts. The primary key is the write-once rule: kind, node, path and number name a fact within its execution.
-- mark: which attempt to write it this was, for a writer that did not hear the answer.
-- due: not later than when what the row waits for has to be looked at; NULL if it waits for no time.
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

-- What has to be said to others once an execution has started or ended. body: the message, once it was made.
-- until: nobody else looks at it before; set anew by whoever takes it.
CREATE TABLE outbox (
    number    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    until     bigint NOT NULL,
    execution text COLLATE "C" NOT NULL,
    kind      text COLLATE "C" NOT NULL CHECK (kind IN ('start', 'end')),
    body      bytea,
    UNIQUE (execution, kind)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

-- Executions that ended because the engine could do no more; settled once somebody has requeued or dropped them.
CREATE TABLE dead_letter (
    at        bigint NOT NULL,
    execution text COLLATE "C" PRIMARY KEY,
    code      text NOT NULL,
    settled   text
);
CREATE INDEX dead_letter_open ON dead_letter (at, execution) WHERE settled IS NULL;

-- expires: set when the execution is removed; the key is spent until then.
CREATE TABLE client_key (
    at        bigint NOT NULL,
    expires   bigint,
    key       text COLLATE "C" PRIMARY KEY,
    execution text COLLATE "C" NOT NULL,
    digest    bytea NOT NULL
);
CREATE INDEX client_key_execution ON client_key (execution);
CREATE INDEX client_key_expires ON client_key (expires) WHERE expires IS NOT NULL;

-- Large values are written as they are: compressing them would cost the server more than the disk.
CREATE TABLE blob (
    execution text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    data      bytea NOT NULL,
    PRIMARY KEY (execution, key)
);
ALTER TABLE blob ALTER COLUMN data SET STORAGE EXTERNAL;

-- Facts of `execution` name blobs of `other`, which therefore stays as long as it does.
CREATE TABLE needs (
    execution text COLLATE "C" NOT NULL,
    other     text COLLATE "C" NOT NULL,
    PRIMARY KEY (execution, other)
);
CREATE INDEX needs_other ON needs (other);

-- Executions that are off the list while rows of them may be left; to be looked at from `until` on. leaving: before that
-- moment nobody gets its id, for somebody removes what lies elsewhere under this name.
CREATE TABLE removed (
    n         bigint PRIMARY KEY,
    ended_at  bigint NOT NULL,
    until     bigint NOT NULL,
    leaving   bigint NOT NULL DEFAULT 0,
    id        text COLLATE "C" NOT NULL
);
CREATE INDEX removed_until ON removed (until, n);
CREATE INDEX removed_id ON removed (id);

-- Stored definitions: what was deployed as which version. A row is never changed, and numbers have no gaps.
CREATE TABLE version (
    at        bigint NOT NULL,
    number    integer NOT NULL,
    workflow  text COLLATE "C" NOT NULL,
    hash      text COLLATE "C" NOT NULL,
    name      text NOT NULL,
    PRIMARY KEY (workflow, number),
    UNIQUE (hash, workflow)
);

-- Names that point at versions. `revision` counts how often one was changed; `weights`: percent of the starts by the
-- number of another version.
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

-- deployed_at: the last time; hidden_at: NULL while it is in sight.
CREATE TABLE workflow (
    deployed_at bigint NOT NULL,
    hidden_at   bigint,
    id          text COLLATE "C" PRIMARY KEY
);

-- Credentials. `sealed` is opened by the key named beside it and is bound to id, type and version; `shown` is for
-- lists.
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
