"""Keys as one process knows them: looked up when they are sent, and believed for a moment at most."""

from __future__ import annotations

import time
from contextlib import suppress

from rune.ports.clock import Clock
from rune.ports.journal import StoreAway
from rune.ports.keys import Key, Keys, Made, digest_of
from rune.runtime.backend import Backend

REMEMBERED = 0.5
"""How long a key of a cluster is believed, in seconds: that long a revoked one may still open."""

COARSE = 60_000
"""How often it is noted that a key is used, in ms."""

MOST = 10_000
_NOBODY = Key(id="", name="", role="viewer", digest=digest_of(""), created_at=0, created_by="")


class KnownKeys:
    """Keys by id. `remembered`: 0 asks the store each time."""

    def __init__(self, keys: Keys, clock: Clock, *, remembered: float = 0.0) -> None:
        self._keys = keys
        self._clock = clock
        self._remembered = remembered
        self._found: dict[str, tuple[float, Key | None]] = {}
        self._exist = False
        self._looked = -1.0
        self._noted: dict[str, int] = {}

    async def opened_by(self, made: Made) -> Key | None:
        """The key that this is, if it opens anything now. One that is not there takes as long as a wrong one."""
        key = await self._find(made.id)
        right = (key or _NOBODY).opened_by(made.secret)
        now = self._clock.now()
        if key is None or not right or not key.holds(now):
            return None
        await self._note(key, now)
        return key

    async def holds(self, id: str) -> bool:
        """Whether a key still opens anything."""
        key = await self._find(id)
        return key is not None and key.holds(self._clock.now())

    async def exist(self) -> bool:
        """Whether a key was ever made: they are not removed, so once is for ever."""
        if not self._exist and time.monotonic() - self._looked >= self._remembered:
            self._exist = await self._keys.exist()
            self._looked = time.monotonic()
        return self._exist

    async def _find(self, id: str) -> Key | None:
        if not self._remembered:
            return await self._keys.find(id)
        at, key = self._found.get(id, (-1.0, None))
        now = time.monotonic()
        if at < 0 or now - at >= self._remembered:
            key = await self._keys.find(id)
            if len(self._found) >= MOST:
                self._found.clear()
            self._found[id] = (now, key)
        return key

    async def _note(self, key: Key, now: int) -> None:
        last = self._noted.get(key.id, key.used_at or 0)
        if now - last < COARSE:
            return
        self._noted[key.id] = now
        with suppress(StoreAway):  # nobody is turned away because this cannot be written
            await self._keys.used(key.id, now)


def known_keys(backend: Backend) -> KnownKeys:
    """The keys of a backend. Where one process owns the store, looking is as quick as remembering."""
    return KnownKeys(backend.keys, backend.clock, remembered=REMEMBERED if backend.fleet is not None else 0.0)
