"""The commands of `rune`, one module per subject."""
