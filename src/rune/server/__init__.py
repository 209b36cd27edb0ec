"""The HTTP API and the status page."""
