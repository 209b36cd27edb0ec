"""Commands that show documents of the API. The server computes them, or this process if RUNE_URL names none."""
