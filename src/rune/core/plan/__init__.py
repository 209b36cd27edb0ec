"""The plan: a definition compiled for execution."""
