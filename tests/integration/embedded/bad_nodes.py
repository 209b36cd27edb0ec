"""Nodes that return invalid values or raise unusual exceptions."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from rune.nodes.custom import node


class CustomBaseException(BaseException):
    """Not an Exception, so that `except Exception` does not catch it."""


def _endless(depth: int = 0) -> int:
    return _endless(depth + 1) + 1


def _nested() -> Any:
    value: Any = []
    for _ in range(5_000):
        value = [value]
    return value


WAYS: dict[str, Any] = {
    "nan": lambda: float("nan"),
    "infinity": lambda: {"x": [float("inf")]},
    "set": lambda: {1, 2} | {object()},
    "object": object,
    "function": lambda: print,
    "huge": lambda: "x" * 70_000_000,
    "deep": _nested,
    "keys": lambda: {(1, 2): 3},
    "surrogate": lambda: "\ud800",
    "exit": lambda: sys.exit(7),
    "odd": lambda: (_ for _ in ()).throw(CustomBaseException("odd")),
    "recursion": _endless,
    "unicode": "\ud800".encode,
    "error with a surrogate": lambda: (_ for _ in ()).throw(ValueError("\ud800 is half")),
    "memory": lambda: (_ for _ in ()).throw(MemoryError()),
    "stop": lambda: next(iter(())),
    "assertion": lambda: (_ for _ in ()).throw(AssertionError()),
    "cancelled": lambda: (_ for _ in ()).throw(asyncio.CancelledError()),
    "timeout": lambda: (_ for _ in ()).throw(TimeoutError()),
}


@node("bad.async")
async def bad_async(way: str) -> Any:
    """Run in the event loop."""
    return WAYS[way]()


@node("bad.thread")
def bad_thread(way: str) -> Any:
    """Run in a thread."""
    return WAYS[way]()


@node("bad.pure", effectful=False)
def bad_pure(way: str) -> Any:
    """Run inline."""
    return WAYS[way]()
