"""Acceptance tests: Rune as its users see it."""
