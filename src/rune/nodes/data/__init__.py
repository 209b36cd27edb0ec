"""Node types that transform data."""
