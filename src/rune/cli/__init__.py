"""The `rune` command line."""
