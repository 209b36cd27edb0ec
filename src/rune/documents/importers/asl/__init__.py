"""Import state machines in the Amazon States Language."""
