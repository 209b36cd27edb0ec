-- save_definition: keeps definition $2 under its hash $1; the same one twice is one. The lock is that of a start that
-- names it, so that a removal is before it or behind it.
WITH locked AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared(hashtextextended($1, 2)))
INSERT INTO definition (hash, canonical) SELECT $1, $2 FROM locked ON CONFLICT DO NOTHING
