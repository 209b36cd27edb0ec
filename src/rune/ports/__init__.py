"""Ports: the few verbs the runtime asks of the world, none of which names a technology."""
