"""Benchmarks that anyone can run: `rune bench`. Each figure stands beside its limit, measured in the same run."""
