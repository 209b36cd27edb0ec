"""Adapters: implementations of the ports on real stores. Only `bootstrap` imports them."""
