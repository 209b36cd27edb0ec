"""Execution state in Redis, changed by Lua functions, and a queue on Redis Streams."""
