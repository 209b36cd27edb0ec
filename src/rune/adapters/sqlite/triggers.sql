-- Triggers, and what was signed for them. body: everything of a trigger; the columns are what is looked for.
-- due: when a schedule has to be looked at; NULL for hooks and for what is switched off.

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

-- What was signed comes under one delivery only. until: nobody believes the signature any more (epoch ms).
CREATE TABLE signed_delivery (
    trigger_id TEXT NOT NULL,
    mark       TEXT NOT NULL,
    delivery   TEXT NOT NULL,
    until      INTEGER NOT NULL,
    PRIMARY KEY (trigger_id, mark)
) WITHOUT ROWID;
CREATE INDEX signed_delivery_until ON signed_delivery (until);
