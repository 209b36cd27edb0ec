"""Turns at work that is done for one request at a time, such as reading a large document."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request

from rune.core.permissions import Principal


class Turns:
    """One request has its turn at a time. The principals that wait are served one after the other, so that many
    requests with one key delay those with another key by one turn only."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._taken = False

    def __len__(self) -> int:
        """Return how many requests wait."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def take(self, request: Request) -> AsyncIterator[None]:
        """Wait for the turn of a request and hold it during the block. Raise ClientDisconnect if the client has
        disconnected meanwhile."""
        principal: Principal = request.scope["principal"]
        await self._wait(principal.name)
        try:
            if await request.is_disconnected():
                raise ClientDisconnect
            yield
        finally:
            self._pass_on()

    async def _wait(self, principal: str) -> None:
        if not self._taken:
            self._taken = True
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(principal, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give the turn to the next principal, which then waits behind the others."""
        while self._waiting:
            principal, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[principal] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._taken = False
