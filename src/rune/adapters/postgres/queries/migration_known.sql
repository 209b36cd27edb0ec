-- migration_known: whether any step was ever taken here. Changes nothing.
SELECT to_regclass('rune_migration') IS NOT NULL AS known
