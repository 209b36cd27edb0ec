"""Slows down wrong API keys by address.

The response to a wrong key is delayed, so that an address can try a few keys a second at most. A valid key is accepted
without delay: behind a proxy all clients have one address, and one of them must not lock out the others. Only an
address with many delayed responses at once is rejected with all of its keys, until these are sent.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable

from rune.server.responses import TooManyLoginsError

log = logging.getLogger("rune.server")

MAX_FAILED_LOGINS = 10  # wrong keys of one address within WINDOW_S before responses are delayed
WINDOW_S = 60.0
MAX_DELAY_S = 10.0
MAX_ADDRESSES = 10_000  # of which wrong keys are counted
MAX_DELAYED = 1_000  # responses that are delayed at the same time
MAX_DELAYED_PER_ADDRESS = 32


class FailedLogins:
    """Counts wrong keys by address and delays the responses to them. A request without a key is not counted. A `limit`
    of 0 delays nothing."""

    def __init__(
        self,
        limit: int = MAX_FAILED_LOGINS,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._limit = limit
        self._clock = clock
        self._sleep = sleep
        self._failed: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._delayed: Counter[str] = Counter()

    def check(self, host: str) -> None:
        """Raise if too many responses to this address are delayed at the moment."""
        if not self._delayed:
            return
        delayed = self._delayed[_network(host)]
        if delayed >= MAX_DELAYED_PER_ADDRESS or (delayed and self._delayed.total() >= MAX_DELAYED):
            raise TooManyLoginsError(
                "this address sends too many wrong API keys at once", math.ceil(MAX_DELAY_S)
            )

    async def record(self, host: str) -> None:
        """Count a wrong key, and wait before the response if the address has sent too many."""
        if not self._limit:
            return
        address = _network(host)
        count = self._count(address)
        if count < self._limit:
            return
        if count == self._limit:
            log.warning(
                "%s has sent %d wrong API keys within a minute; responses are delayed now", host, count
            )
            return
        if self._delayed.total() >= MAX_DELAYED:
            raise TooManyLoginsError(
                "too many wrong API keys are sent to this server", math.ceil(MAX_DELAY_S)
            )
        self._delayed[address] += 1
        try:
            await self._sleep(min(MAX_DELAY_S, 2.0 ** (count - self._limit - 1)))
        finally:
            self._delayed[address] -= 1
            if not self._delayed[address]:
                del self._delayed[address]

    def _count(self, address: str) -> int:
        now = self._clock()
        count, at = self._failed.pop(address, (0, now))
        count = count + 1 if now - at < WINDOW_S else 1
        self._failed[address] = (count, now)
        if len(self._failed) > MAX_ADDRESSES:
            self._failed.popitem(last=False)
        return count


def _network(host: str) -> str:
    """Return what counts as one address: a client usually has a whole /64 network of IPv6 addresses."""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.IPv6Network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host
