-- The handlers of deployed workflows that name none: one row of JSON.
CREATE TABLE handler_default (
    one  integer PRIMARY KEY CHECK (one = 1),
    body text NOT NULL
);
