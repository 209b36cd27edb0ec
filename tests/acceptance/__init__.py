"""Acceptance tests: Rune through its commands, API, status page and deployment files."""
