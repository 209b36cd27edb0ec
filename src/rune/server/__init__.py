"""The HTTP API and the web interface."""
