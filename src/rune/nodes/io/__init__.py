"""Node types that reach outside."""
