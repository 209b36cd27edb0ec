"""The principal of the current request, in a context variable. Unless the server sets one, it is the local user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rune.core.permissions import LOCAL, Principal

_PRINCIPAL: ContextVar[str] = ContextVar("rune_actor", default=LOCAL)
_SCOPES: ContextVar[tuple[str, ...]] = ContextVar("rune_scopes", default=())


def current_principal() -> str:
    """Return the name of the principal of this request."""
    return _PRINCIPAL.get()


def current_scopes() -> tuple[str, ...]:
    """Return the scopes of the principal of this request; none: all workflows."""
    return _SCOPES.get()


def set_principal(principal: Principal) -> None:
    """Set the principal for the rest of this request."""
    _PRINCIPAL.set(principal.name)
    _SCOPES.set(principal.scopes)


@contextmanager
def as_principal(principal: str) -> Iterator[None]:
    """Set the principal while the block runs."""
    before = _PRINCIPAL.set(principal)
    try:
        yield
    finally:
        _PRINCIPAL.reset(before)
