"""Decorator for asynchronous tests."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")
TEST_TIMEOUT_S = 240.0  # generous: on a busy machine each command to a broker is slow


def async_test(body: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run the test in an event loop of its own, with a timeout."""

    @functools.wraps(body)
    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        async def within_timeout() -> None:
            async with asyncio.timeout(TEST_TIMEOUT_S):
                await body(*args, **kwargs)

        asyncio.run(within_timeout())

    return test
