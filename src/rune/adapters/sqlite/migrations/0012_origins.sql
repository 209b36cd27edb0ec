-- Version 12: from where a change was requested, and the id of the request; empty for entries of commands.
ALTER TABLE log ADD COLUMN address TEXT NOT NULL DEFAULT '';
ALTER TABLE log ADD COLUMN request TEXT NOT NULL DEFAULT '';
