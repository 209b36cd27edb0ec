"""Patience that ends, for what happens elsewhere and tells nobody."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import Callable
from typing import Any

LEAST_LOOK, MOST_LOOK = 0.01, 0.2  # s between two looks: what takes long is not looked at all the time
PATIENCE = 240.0  # s


async def until(holds: Callable[[], Any], what: object = "it holds", patience: float = PATIENCE) -> None:
    """Look again and again until something holds; a look may have to be awaited."""
    never = asyncio.Event()
    deadline = time.monotonic() + patience
    pause = LEAST_LOOK
    while not await _seen(holds):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {patience:.0f} s in vain until {what}")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await never.wait()
        pause = min(MOST_LOOK, pause * 1.25)


async def _seen(holds: Callable[[], Any]) -> Any:
    found = holds()
    return await found if inspect.isawaitable(found) else found
