"""Waiting for conditions that other processes or tasks bring about."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import Callable
from typing import Any

MIN_PAUSE_S, MAX_PAUSE_S = 0.01, 0.2
TIMEOUT_S = 240.0  # s


async def until(
    holds: Callable[[], Any],
    what: object = "it holds",
    patience: float = TIMEOUT_S,
    *,
    max_pause: float = MAX_PAUSE_S,
) -> None:
    """Poll a condition, awaitable or not, until it holds; fail after `patience` seconds."""
    never = asyncio.Event()
    deadline = time.monotonic() + patience
    pause = MIN_PAUSE_S
    while not await _evaluate(holds):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {patience:.0f} s in vain until {what}")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await never.wait()
        pause = min(max_pause, pause * 1.25)


async def _evaluate(holds: Callable[[], Any]) -> Any:
    found = holds()
    return await found if inspect.isawaitable(found) else found
