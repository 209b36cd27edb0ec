"""The embedded backend: one process, one SQLite file, nothing beside it."""
