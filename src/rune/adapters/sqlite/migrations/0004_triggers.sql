-- Version 4: triggers. `body` has all fields; the columns are those that queries use.
-- due: when the scheduler has to process a schedule; NULL for webhooks and disabled triggers.

CREATE TABLE workflow_trigger (
    id        TEXT PRIMARY KEY,
    workflow  TEXT NOT NULL,
    node      TEXT NOT NULL,
    path      TEXT UNIQUE,
    due       INTEGER,
    revision  INTEGER NOT NULL,
    body      BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX workflow_trigger_workflow ON workflow_trigger (workflow, node);
CREATE INDEX workflow_trigger_due ON workflow_trigger (due) WHERE due IS NOT NULL;

-- The delivery id under which a signature was received, to detect replays. until: when the signature expires (epoch ms).
CREATE TABLE signed_delivery (
    trigger_id TEXT NOT NULL,
    mark       TEXT NOT NULL,
    delivery   TEXT NOT NULL,
    until      INTEGER NOT NULL,
    PRIMARY KEY (trigger_id, mark)
) WITHOUT ROWID;
CREATE INDEX signed_delivery_until ON signed_delivery (until);
