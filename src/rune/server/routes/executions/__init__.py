"""The routes about executions: starts and lists, actions on them, and what each has done so far."""
