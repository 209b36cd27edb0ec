"""The state coordinates: tokens, joins, leases and timers of running executions. It can be lost: it is a fold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from rune.core.execution.control import Verdict
from rune.core.execution.decision import Decision, FinishExecution, Timer
from rune.core.execution.explain import Waiting
from rune.core.execution.fact import ExecutionEnded, PauseChanged, SignalReceived
from rune.core.execution.token import Path, Token

Fence = tuple[int, int]
"""Incarnation of the store, and a number that only grows."""


class Claim(msgspec.Struct, frozen=True):
    """What became of the wish to run a token. `token` is the token as the state has it."""

    verdict: Verdict | str
    token: Token
    now: int
    fence: Fence | None = None
    again: bool = False  # it was claimed before: the journal may already know how it ended
    due: int | None = None  # of a wait that is over
    recovered: bool = False  # the execution was read back from the journal
    first: int | None = None  # of a join: when the first of its parties arrived


class Applied(msgspec.Struct, frozen=True):
    """What followed from decisions: tokens to send, the end if it came."""

    emitted: tuple[Token, ...] = ()
    finish: FinishExecution | None = None
    now: int = 0


class DueTimer(msgspec.Struct, frozen=True):
    """A timer whose time has come, already moved on: its tokens are for the queue."""

    execution: str
    timer: Timer
    emitted: tuple[Token, ...]
    finish: FinishExecution | None
    now: int
    priority: int = 5
    due: int | None = None  # when it was to ring, where that is known


class Listener(msgspec.Struct, frozen=True):
    """A token that waits for a signal."""

    signal: str
    node: int
    path: Path


class State(Protocol):
    """One verb per act, each atomic."""

    async def begin(self, execution: str) -> Applied:
        """Open an accepted execution."""

    async def claim(self, execution: str, token: Token, owner: str, *, leased: bool) -> Claim:
        """Ask to run a token. `leased`: nobody else may while the lease holds."""

    async def renew(self, execution: str, node: int, path: Path, fence: Fence) -> bool:
        """Prove and prolong a lease."""

    def predict_end(
        self, execution: str, decisions: Sequence[Decision]
    ) -> tuple[FinishExecution, int] | None:
        """The end that these decisions will bring, and its time, where that is certain without applying them."""

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        """Make decisions true that the journal has."""

    async def control(self, execution: str, fact: PauseChanged) -> Applied:
        """Pause or resume, as the journal says."""

    async def pause_state(self, execution: str) -> tuple[int, bool]:
        """How often an execution was paused or resumed, and whether it is paused now."""

    async def signal(self, execution: str, fact: SignalReceived) -> Applied:
        """Hand on a signal that the journal has."""

    async def waiting_for_signal(self, execution: str) -> list[Listener]:
        """Who waits for which signal, the longest first."""

    async def end(self, execution: str, fact: ExecutionEnded) -> None:
        """The terminal mark; what was kept of the execution is dropped."""

    async def due_timers(self, limit: int) -> list[DueTimer]:
        """Move due timers on."""

    async def next_due(self) -> int | None:
        """When the next timer is due (epoch ms)."""

    async def unclaimed_tokens(self, limit: int) -> list[tuple[str, Token, int]]:
        """Tokens that nobody holds and no queue may have, with their priority: what the sweeper sends again."""

    async def explain(self, execution: str) -> list[Waiting]:
        """Why an execution is where it is."""
