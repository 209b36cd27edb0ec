"""The queue on Redis Streams and its dead letters."""
