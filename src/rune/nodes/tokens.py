"""Tokens that were fetched with a credential, for as long as they are good; in memory and nowhere else."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

MOST = 256
MARGIN = 30.0
"""A token is not used in its last seconds: it would expire on the way."""

Key = tuple[str, int]
"""Id and version of a credential: what was rotated gets a new token."""

Fetch = Callable[[], Awaitable[tuple[str, float]]]
"""A new token, and the seconds that it is good for."""


class Tokens:
    """One for each worker process."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, tuple[str, float]] = OrderedDict()
        self._fetching: dict[Key, asyncio.Lock] = {}

    async def get(self, key: Key, fetch: Fetch, *, instead_of: str | None = None) -> str:
        """The token of a credential; one that was refused is not given again. Of many who ask at once one fetches."""
        found = self._good(key, instead_of)
        if found is not None:
            return found
        lock = self._fetching.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                found = self._good(key, instead_of)
                if found is not None:
                    return found
                token, seconds = await fetch()
                self._keep(key, token, seconds)
                return token
        finally:
            if not lock.locked():
                self._fetching.pop(key, None)

    def _good(self, key: Key, refused: str | None) -> str | None:
        token, until = self._kept.get(key, ("", 0.0))
        return token if token and token != refused and time.monotonic() < until else None

    def _keep(self, key: Key, token: str, seconds: float) -> None:
        self._kept.pop(key, None)
        self._kept[key] = token, time.monotonic() + seconds - min(MARGIN, seconds / 2)
        for old in [each for each in self._kept if each[0] == key[0] and each != key]:
            del self._kept[old]
        if len(self._kept) > MOST:
            self._kept.popitem(last=False)
