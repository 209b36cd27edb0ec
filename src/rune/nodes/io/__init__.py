"""Node types that call external services."""
