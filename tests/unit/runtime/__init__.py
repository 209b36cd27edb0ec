"""Unit tests of the runtime."""
