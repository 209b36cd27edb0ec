"""A reporter tells whoever looks on how far a node is. Nothing is written down, and too much is left out."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable

from rune.core.token import Token
from rune.nodes.inuse import IN_USE

PAUSE = 0.1  # s between two reports of one run
LONGEST = 200

Told = Callable[[str, Token, str], None]


class Reporter:
    """Of one run of a node. It may be called from any thread."""

    __slots__ = ("_execution", "_loop", "_next", "_token", "_told")

    def __init__(self, told: Told, execution: str, token: Token) -> None:
        self._told = told
        self._execution = execution
        self._token = token
        self._loop = asyncio.get_running_loop()
        self._next = 0.0

    def __call__(self, what: float | str) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + PAUSE
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody looks on any more
            self._loop.call_soon_threadsafe(
                self._told, self._execution, self._token, IN_USE.text(as_text(what))
            )


def as_text(what: float | str) -> str:
    """A share as a percentage, words on one line."""
    if isinstance(what, str):
        return " ".join(what.split())[:LONGEST]
    if not math.isfinite(what):
        return ""
    return f"{min(max(what, 0.0), 1.0):.0%}"
