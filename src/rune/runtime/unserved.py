"""Unserved queues: as long as nobody reads a queue, nothing is sent to it again.

What nobody has claimed for a minute is taken for lost and sent again. Where no worker is there it is not lost but
waits, and a copy a minute would let the queue grow for as long as nobody comes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from rune.core.token import Token
from rune.ports.fleet import Fleet
from rune.ports.state import State

Route = Callable[[str, Token], Awaitable[str]]


class Unserved:
    """Around a state. Before `follows` everything is sent again."""

    def __init__(self, state: State, route: Route) -> None:
        self._state = state
        self._route = route
        self._fleet: Fleet | None = None
        self.claim = state.claim  # asked for every token: nothing stands in between
        self.apply = state.apply

    def follows(self, fleet: Fleet | None) -> None:
        """Where it sees who is there."""
        self._fleet = fleet

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._state, verb)

    async def unheld(self, limit: int) -> list[tuple[str, Token, int]]:
        """What is left out is looked at again a minute later."""
        found = await self._state.unheld(limit)
        if not found or self._fleet is None:
            return found
        members = await self._fleet.members()
        served = {queue for each in members if "worker" in each.roles for queue in each.queues}
        return [each for each in found if await self._route(each[0], each[1]) in served]


def unserved(around: Unserved) -> State:
    """The state that it stands around."""
    return cast(State, around)
