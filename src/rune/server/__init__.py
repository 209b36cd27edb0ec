"""The master: what people and programs talk to."""
