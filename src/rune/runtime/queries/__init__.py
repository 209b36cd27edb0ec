"""Read-only views of executions: lists, history, verification."""
