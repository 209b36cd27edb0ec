"""Unit tests: one module of Rune each, no server and no process."""
