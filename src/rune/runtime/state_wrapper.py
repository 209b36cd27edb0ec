"""Wrappers around the state port: a base class that spells every method out, and a state with an observer."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from rune.core.execution.decision import Decision, FinishExecution
from rune.core.execution.explain import Waiting
from rune.core.execution.fact import ExecutionEnded, PauseChanged, SignalReceived
from rune.core.execution.token import Path, Token
from rune.ports.state import Applied, Claim, DueTimer, Fence, Listener, State


class StateWrapper:
    """Passes every call on. Subclasses override what they change.

    Methods return the awaitable of the wrapped state, so that a wrapper costs one call and no coroutine per token.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def rebuilds(self) -> int:
        """How often the state of an execution was rebuilt from the journal; 0 for a state that does not count."""
        count: int = getattr(self._state, "rebuilds", 0)
        return count

    def begin(self, execution: str) -> Coroutine[Any, Any, Applied]:
        return self._state.begin(execution)

    def claim(self, execution: str, token: Token, owner: str, *, leased: bool) -> Coroutine[Any, Any, Claim]:
        return self._state.claim(execution, token, owner, leased=leased)

    def renew(self, execution: str, node: int, path: Path, fence: Fence) -> Coroutine[Any, Any, bool]:
        return self._state.renew(execution, node, path, fence)

    def give_back(
        self, execution: str, token: Token, owner: str, delays: Sequence[int] = ()
    ) -> Coroutine[Any, Any, int]:
        return self._state.give_back(execution, token, owner, delays)

    def predict_end(
        self, execution: str, decisions: Sequence[Decision]
    ) -> tuple[FinishExecution, int] | None:
        return self._state.predict_end(execution, decisions)

    def apply(self, execution: str, decisions: Sequence[Decision]) -> Coroutine[Any, Any, Applied]:
        return self._state.apply(execution, decisions)

    def control(self, execution: str, fact: PauseChanged) -> Coroutine[Any, Any, Applied]:
        return self._state.control(execution, fact)

    def pause_state(self, execution: str) -> Coroutine[Any, Any, tuple[int, bool]]:
        return self._state.pause_state(execution)

    def signal(self, execution: str, fact: SignalReceived) -> Coroutine[Any, Any, Applied]:
        return self._state.signal(execution, fact)

    def waiting_for_signal(self, execution: str) -> Coroutine[Any, Any, list[Listener]]:
        return self._state.waiting_for_signal(execution)

    def end(self, execution: str, fact: ExecutionEnded) -> Coroutine[Any, Any, None]:
        return self._state.end(execution, fact)

    def due_timers(self, limit: int) -> Coroutine[Any, Any, list[DueTimer]]:
        return self._state.due_timers(limit)

    def next_due(self) -> Coroutine[Any, Any, int | None]:
        return self._state.next_due()

    def unclaimed_tokens(self, limit: int) -> Coroutine[Any, Any, list[tuple[str, Token, int]]]:
        return self._state.unclaimed_tokens(limit)

    def explain(self, execution: str) -> Coroutine[Any, Any, list[Waiting]]:
        return self._state.explain(execution)


class ExecutionObserver(Protocol):
    """Is called on every step of every execution of this process; it must only count."""

    def claimed(self, execution: str, token: Token) -> None:
        """A token starts to run."""

    def applied(self, execution: str, decisions: Sequence[Decision]) -> None:
        """Decisions were applied to the state."""

    def progressed(self, execution: str, token: Token, text: str) -> None:
        """A running node reported its progress."""


class ObservedState(StateWrapper):
    """Calls an observer after each claim and each apply."""

    def __init__(self, state: State, observer: ExecutionObserver) -> None:
        super().__init__(state)
        self._observer = observer

    async def claim(self, execution: str, token: Token, owner: str, *, leased: bool) -> Claim:
        claim = await self._state.claim(execution, token, owner, leased=leased)
        if claim.verdict == "run":
            self._observer.claimed(execution, claim.token)
        return claim

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        applied = await self._state.apply(execution, decisions)
        self._observer.applied(execution, decisions)
        return applied
