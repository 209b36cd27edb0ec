"""Integration tests: engines over real stores and brokers."""
