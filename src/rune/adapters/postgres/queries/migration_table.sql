-- migration_table: the steps that were taken. Once it is there, nothing changes.
CREATE TABLE IF NOT EXISTS rune_migration (
    number integer PRIMARY KEY,
    name   text NOT NULL,
    at     timestamptz NOT NULL DEFAULT clock_timestamp()
)
