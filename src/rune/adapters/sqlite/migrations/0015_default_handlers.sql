-- The handlers of deployed workflows that name none: one row of JSON.
CREATE TABLE handler_default (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    body TEXT NOT NULL
);
