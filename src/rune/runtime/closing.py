"""Closing: where the journal has the last decisions of an execution together with its end, they are not applied.

What they would change is about to be dropped. Until then the delivery that brought the token is not acknowledged, so if
its holder dies somebody is led to the rows; the outbox leads there too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from rune.core.effect import Decision, Finish
from rune.core.fact import End
from rune.core.lineage import Path
from rune.ports.state import Applied, State

MOST = 10_000

Release = Callable[[str, int, Path], Awaitable[None]]
"""Nobody has to look after this token any longer."""


class Closing:
    """Around a state that does not send what it emits."""

    def __init__(self, state: State, release: Release) -> None:
        self._state = state
        self._release = release
        self._certain: OrderedDict[str, tuple[Sequence[Decision], tuple[Finish, int]]] = OrderedDict()
        self._foresee = state.certain_end
        self.claim = state.claim  # asked for every token: nothing stands in between
        self.renew = state.renew

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._state, verb)

    def certain_end(self, execution: str, decisions: Sequence[Decision]) -> tuple[Finish, int] | None:
        """Whoever asks writes the end with the facts of these decisions, if there is one."""
        found = self._foresee(execution, decisions)
        if found is not None:
            self._certain[execution] = (decisions, found)
            if len(self._certain) > MOST:
                self._certain.popitem(last=False)
        return found

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        certain = self._certain.get(execution)
        if certain is None or certain[0] is not decisions:
            return await self._state.apply(execution, decisions)
        return Applied((), *certain[1])

    async def end(self, execution: str, fact: End) -> None:
        await self._state.end(execution, fact)
        certain = self._certain.pop(execution, None)
        if certain is not None:
            first = certain[0][0]
            await self._release(execution, first.node, first.path)


def closing(around: Closing) -> State:
    """The state that it stands around."""
    return cast(State, around)
