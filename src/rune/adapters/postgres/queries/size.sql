-- size: what the tables take on disk, with their indexes, in bytes. Changes nothing.
SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint AS bytes FROM pg_class
WHERE relkind = 'r' AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'fact'::regclass)
  AND relname = ANY ($1::text[])
