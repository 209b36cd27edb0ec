"""Test support for workflows and node types: an engine harness, a virtual clock and a node context."""
