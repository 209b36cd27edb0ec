"""Adapters: the ports on real stores. Only `compose` imports them."""
