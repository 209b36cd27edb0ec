"""The change that turns each hazard's test red, by the key that stands beside the test."""
