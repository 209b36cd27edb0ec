"""The runtime: does what the core decides."""
