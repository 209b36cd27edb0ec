"""Checks of a parsed document, one concern per file. Each reports problems and decides nothing."""
