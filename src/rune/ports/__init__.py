"""Ports: the interfaces that the runtime requires of its stores. No port names a technology."""
