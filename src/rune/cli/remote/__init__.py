"""The server named by RUNE_URL, as commands use it."""
