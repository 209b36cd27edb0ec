"""An observed state tells somebody what is claimed and decided, as it happens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

from rune.core.effect import Decision
from rune.core.token import Token
from rune.ports.state import Applied, Claim, State


class Observer(Protocol):
    """Somebody who looks on. What is told costs the engine time, so it is only counted."""

    def claimed(self, execution: str, token: Token) -> None:
        """A token begins to run."""

    def applied(self, execution: str, decisions: Sequence[Decision]) -> None:
        """Decisions have become true."""

    def progressed(self, execution: str, token: Token, text: str) -> None:
        """A node that runs says how far it is."""


class _Observed:
    def __init__(self, state: State, observer: Observer) -> None:
        self._state = state
        self._observer = observer

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._state, verb)

    async def claim(self, execution: str, token: Token, owner: str, *, leased: bool) -> Claim:
        claim = await self._state.claim(execution, token, owner, leased=leased)
        if claim.verdict == "run":
            self._observer.claimed(execution, claim.token)
        return claim

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        applied = await self._state.apply(execution, decisions)
        self._observer.applied(execution, decisions)
        return applied


def observed(state: State, observer: Observer) -> State:
    """The state, with an observer."""
    return cast(State, _Observed(state, observer))
