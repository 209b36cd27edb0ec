"""Scenarios: asynchronous test bodies, each in a loop and a folder of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

S = TypeVar("S")
DEADLINE = 120.0


def scenario(body: Callable[[S, Path], Coroutine[Any, Any, None]]) -> Callable[[S, Path], None]:
    """A test method that runs the body under a deadline; `tmp_path` is pytest's."""

    async def within(suite: S, folder: Path) -> None:
        async with asyncio.timeout(DEADLINE):
            await body(suite, folder)

    def test(self: S, tmp_path: Path) -> None:
        asyncio.run(within(self, tmp_path))

    test.__name__ = test.__qualname__ = body.__name__
    test.__doc__ = body.__doc__
    return test
