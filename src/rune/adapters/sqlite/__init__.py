"""The embedded backend: one owner process and one SQLite file, without other services."""
