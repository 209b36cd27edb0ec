-- Triggers, and what was signed for them. body: everything of a trigger; the columns are what is looked for.
-- due: when a schedule has to be looked at; NULL for hooks and for what is switched off.

CREATE TABLE workflow_trigger (
    due       bigint,
    revision  bigint NOT NULL,
    id        text COLLATE "C" PRIMARY KEY,
    workflow  text COLLATE "C" NOT NULL,
    node      text COLLATE "C" NOT NULL,
    path      text COLLATE "C" UNIQUE,
    body      bytea NOT NULL
);
CREATE INDEX workflow_trigger_workflow ON workflow_trigger (workflow, node);
CREATE INDEX workflow_trigger_due ON workflow_trigger (due) WHERE due IS NOT NULL;

-- What was signed comes under one delivery only. until: nobody believes the signature any more (epoch ms).
CREATE TABLE signed_delivery (
    until      bigint NOT NULL,
    trigger_id text COLLATE "C" NOT NULL,
    mark       text COLLATE "C" NOT NULL,
    delivery   text COLLATE "C" NOT NULL,
    PRIMARY KEY (trigger_id, mark)
);
CREATE INDEX signed_delivery_until ON signed_delivery (until);
