"""What the history of an execution shows, on every backend."""
