-- Handlers that cannot be started. tries: how often the row was taken; error: why the last start failed; given_up: since
-- when it is not taken any more.
ALTER TABLE hook
    ADD COLUMN tries integer NOT NULL DEFAULT 0,
    ADD COLUMN error text NOT NULL DEFAULT '',
    ADD COLUMN given_up bigint;
