"""Waits at the start of a server until its stores can be used.

Processes and stores are usually started together, in any order, and the schema is migrated at the same time. A process
that gave up at the first failure would depend on a supervisor to restart it until the order happens to be right.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from rune.ports.journal import StoreDamagedError, StoreUnavailableError

log = logging.getLogger("rune.startup")

MIN_DELAY_S, MAX_DELAY_S = 0.1, 3.0
LOG_PERIOD_S = 10.0


async def wait_for_store(name: str, check: Callable[[], Awaitable[None]], deadline: float) -> None:
    """Call `check` until it succeeds. After the deadline (monotonic), raise its error.

    Only an unavailable store is waited for: one that is unreachable, starting or being migrated.
    """
    delay = MIN_DELAY_S
    said_at, said = 0.0, ""
    began = time.monotonic()
    while True:
        try:
            await check()
            break
        except StoreDamagedError:
            raise
        except StoreUnavailableError as error:
            left = deadline - time.monotonic()
            if left <= 0:
                raise
            if error.message != said or time.monotonic() - said_at >= LOG_PERIOD_S:
                log.warning("waiting for %s, up to %.0f s longer: %s", name, left, error.message)
                said_at, said = time.monotonic(), error.message
        await asyncio.sleep(min(delay, max(left, 0.0)))
        delay = min(2 * delay, MAX_DELAY_S)
    if said:
        log.info("%s is available after %.1f s", name, time.monotonic() - began)
