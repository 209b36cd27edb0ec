"""The worker: takes tokens from the queue and executes their nodes."""
