"""The rules of an execution: tokens, facts, decisions and state transitions."""
