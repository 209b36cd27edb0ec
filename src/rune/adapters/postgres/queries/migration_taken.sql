-- migration_taken: the mark of step $1, called $2. It stands and falls with the step.
INSERT INTO rune_migration (number, name) VALUES ($1, $2)
