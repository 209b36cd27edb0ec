"""Rune: a durable workflow engine."""

__version__ = "0.1.0"
