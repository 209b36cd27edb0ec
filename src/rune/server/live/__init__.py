"""Live events of executions: each journal is read once for all subscribers."""
