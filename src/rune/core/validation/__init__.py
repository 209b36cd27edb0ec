"""Validation of definitions before they are compiled."""
