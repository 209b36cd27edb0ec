"""Background loops: scheduler, triggers, outbox relay, cleaner, heartbeat."""
