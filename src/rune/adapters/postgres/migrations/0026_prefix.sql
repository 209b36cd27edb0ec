-- The prefix of the keys that this cluster has in Redis, and the database that it was recorded in: a copy of that one has
-- the row too, and needs a prefix of its own. NULL before the first worker, scheduler or API process of this version.
ALTER TABLE cluster ADD COLUMN prefix text, ADD COLUMN prefix_of text;
