-- Triggers and signed webhook deliveries. body: the whole trigger; the columns are those that queries search.
-- due: when a schedule is due; NULL for webhooks and disabled triggers.

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

-- A signature is accepted for one delivery only. until: when the signature expires (epoch ms).
CREATE TABLE signed_delivery (
    until      bigint NOT NULL,
    trigger_id text COLLATE "C" NOT NULL,
    mark       text COLLATE "C" NOT NULL,
    delivery   text COLLATE "C" NOT NULL,
    PRIMARY KEY (trigger_id, mark)
);
CREATE INDEX signed_delivery_until ON signed_delivery (until);
