"""Gathering: decisions of one execution that come while others of it are being applied are applied in one act.

What follows from all of them is told to one of those who wait, who sends it; the others have nothing left to do. If
that one dies, what was emitted is in the state and in no queue, and the sweeper sends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from rune.core.effect import Decision
from rune.core.fact import Choice
from rune.core.inplace import undecided
from rune.ports.state import Applied, State

MOST = 32  # acts in one: a script must not keep others waiting for milliseconds

Waiting = list[tuple[Sequence[Decision], "asyncio.Future[Applied]"]]


class Gathering:
    """Around a state that does not send what it emits. Whoever is alone is served at once."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._waiting: dict[str, Waiting] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self.claim = state.claim  # asked for every token: nothing stands in between
        self.certain_end = state.certain_end
        self.renew = state.renew

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._state, verb)

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        # A choice comes before its token runs: what it emits is told to nobody but who made it.
        if type(decisions[0].fact) is Choice:
            return await self._state.apply(execution, decisions)
        waiting = self._waiting.get(execution)
        if waiting is not None:
            future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
            waiting.append((decisions, future))
            return await future
        self._waiting[execution] = []
        try:
            return await self._state.apply(execution, decisions)
        finally:
            self._next(execution)

    def _next(self, execution: str) -> None:
        """Who has come meanwhile is served together, and who comes meanwhile is served next."""
        waiting = self._waiting.pop(execution)
        if waiting:
            self._waiting[execution] = []
            serving = asyncio.create_task(self._serve(execution, waiting))
            self._serving.add(serving)
            serving.add_done_callback(self._serving.discard)

    async def _serve(self, execution: str, waiting: Waiting) -> None:
        try:
            for start in range(0, len(waiting), MOST):
                await self._serve_some(execution, waiting[start : start + MOST])
        finally:
            for _, future in waiting:
                future.cancel()  # only if we were cancelled: those who were served have their answer
            self._next(execution)

    async def _serve_some(self, execution: str, waiting: Waiting) -> None:
        try:
            applied = await self._together(execution, [decisions for decisions, _ in waiting])
        except Exception as error:
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error)
            return
        heirs = [future for _, future in waiting if not future.done()]
        for future in heirs[:-1]:
            future.set_result(Applied(now=applied.now))
        if heirs:  # the last: what came before it is acknowledged meanwhile, in one frame
            heirs[-1].set_result(applied)

    async def _together(self, execution: str, acts: Sequence[Sequence[Decision]]) -> Applied:
        """One act of several. What one of them emitted and has decided in place is nothing to be sent by another."""
        if len(acts) == 1:
            return await self._state.apply(execution, acts[0])
        decisions = [each for act in acts for each in act]
        applied = await self._state.apply(execution, decisions)
        return Applied(tuple(undecided(decisions, applied.emitted)), applied.finish, applied.now)


def gathering(around: Gathering) -> State:
    """The state that it stands around."""
    return cast(State, around)
