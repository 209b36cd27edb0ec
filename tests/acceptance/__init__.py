"""Acceptance tests: Rune through its commands, API, web interface and deployment files."""
