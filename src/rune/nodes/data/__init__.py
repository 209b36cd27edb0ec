"""Node types that work on data."""
