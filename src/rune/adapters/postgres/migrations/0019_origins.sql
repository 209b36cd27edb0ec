-- From where a change was requested, and the id of the request; empty for entries of commands.
ALTER TABLE log ADD COLUMN address text NOT NULL DEFAULT '';
ALTER TABLE log ADD COLUMN request text NOT NULL DEFAULT '';
