"""Executions as they happen: one reading of each journal, shared by everybody who watches."""
