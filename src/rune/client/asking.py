"""What the parts of a client need of it: one way to ask, which either answers or is awaited."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol

from rune.client.calls import Call


class Asking(Protocol):
    """A client that waits for one thing at a time."""

    def _ask(self, call: Call[Any]) -> Any: ...


class AsyncAsking(Protocol):
    """A client that waits for many things at once."""

    def _ask(self, call: Call[Any]) -> Awaitable[Any]: ...
