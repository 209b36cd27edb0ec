-- Handlers that cannot be started. tries: how often the row was taken; error: why the last start failed; given_up: since
-- when it is not taken any more.
ALTER TABLE hook ADD COLUMN tries INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hook ADD COLUMN error TEXT NOT NULL DEFAULT '';
ALTER TABLE hook ADD COLUMN given_up INTEGER;
