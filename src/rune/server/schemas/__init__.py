"""Functions that build the response types of the API. `rune … --json` prints the same fields."""
