"""The actor: on whose behalf something is asked of the desk. Whoever lets somebody in says who that is; unless said, it
is whoever works on the machine itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rune.core.rights import LOCAL

_ACTOR: ContextVar[str] = ContextVar("rune_actor", default=LOCAL)


def actor() -> str:
    """The name of the principal that asks."""
    return _ACTOR.get()


def act_as(principal: str) -> None:
    """From here on, in this request, this one asks."""
    _ACTOR.set(principal)


@contextmanager
def acting(principal: str) -> Iterator[None]:
    """While the block runs, this one asks."""
    before = _ACTOR.set(principal)
    try:
        yield
    finally:
        _ACTOR.reset(before)
