-- migration_last: the number of the last step that was taken. Changes nothing.
SELECT coalesce(max(number), 0) FROM rune_migration
