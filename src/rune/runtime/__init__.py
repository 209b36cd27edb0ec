"""The runtime: carries out what the core decides, over a backend."""
