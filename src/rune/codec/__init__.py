"""Codecs: how facts, values, messages and calls between processes are encoded."""
