"""Background loops: scheduler, triggers, outbox relay, cleaner, keepalive, watchdog."""
