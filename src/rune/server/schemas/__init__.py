"""Response types of the API, and functions that build them. `rune … --json` prints the same fields."""
