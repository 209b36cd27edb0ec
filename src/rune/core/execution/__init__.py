"""The rules of an execution: tokens, facts, decisions and transitions of the state."""
