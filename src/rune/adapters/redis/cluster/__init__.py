"""Client of a Redis Cluster: which server has a key, redirections, and the run of each server."""
