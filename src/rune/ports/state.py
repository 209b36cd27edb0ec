"""Coordination of running executions: their tokens, joins, leases and timers.

The state is derived by folding the facts of the journal, so a backend that loses it rebuilds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from rune.core.execution import state as folded
from rune.core.execution.control import Verdict
from rune.core.execution.decision import Decision, FinishExecution, Timer
from rune.core.execution.fact import ExecutionEnded, ExecutionLate, PauseChanged, SignalReceived
from rune.core.execution.reasons import Waiting
from rune.core.execution.token import Path, Token

LEASE_MS = 7_500
"""How long a worker holds a token that it does not renew. Deliveries of a queue are held as long."""

RENEWAL_MS = LEASE_MS // 3
"""How often workers renew what they hold."""

Fence = tuple[int, int]
"""Incarnation of the store, and a number that increases with every lease."""


class Claim(msgspec.Struct, frozen=True):
    """The answer to a claim. Only the verdicts `run` and `cancelled` permit the worker to process the token; `held`
    means that another worker has the lease, `held back` that the execution runs as many nodes as its limit allows.
    `token` is the token as the state stores it."""

    verdict: Verdict | str
    token: Token
    now: int
    fence: Fence | None = None
    again: bool = False  # the token was claimed before, so the journal may already have its outcome
    due: int | None = None  # of an expired wait: when it was due
    recovered: bool = False  # the execution was loaded from the journal
    first: int | None = None  # of a join: when its first branch arrived
    given_back: int = 0  # how often a worker gave the token back: such a claim did not crash its worker
    asked: float = 0.0  # when the worker asked for it (monotonic): its lease counts from then on


class KeptToken(msgspec.Struct, frozen=True):
    """A token that was claimed in the step that emitted it and passes through no queue. `tag` is that of the delivery
    under which the queue can still take it; 0 if it cannot."""

    claim: Claim
    tag: int = 0


class Applied(msgspec.Struct, frozen=True):
    """The consequences of a change: tokens to send, the end if the execution has finished, and the token that was
    claimed for the caller."""

    emitted: tuple[Token, ...] = ()
    finish: FinishExecution | None = None
    now: int = 0
    kept: KeptToken | None = None


class DueTimer(msgspec.Struct, frozen=True):
    """A timer that has fired. The caller sends `emitted` to the queue and handles `finish`."""

    execution: str
    timer: Timer
    emitted: tuple[Token, ...]
    finish: FinishExecution | None
    now: int
    priority: int = 5
    due: int | None = None  # when the timer was due, if known


class Listener(msgspec.Struct, frozen=True):
    """A token that waits for a signal of this name."""

    signal: str
    node: int
    path: Path


class State(Protocol):
    """The state of all running executions. Every method is atomic.

    Methods that apply facts expect them in the journal already, and may be called again with the same fact: the
    second call changes nothing. A method that needs an execution which the journal does not have raises
    UnknownExecutionError.
    """

    async def begin(self, execution: str) -> Applied:
        """Open an execution that the journal has accepted and return its first tokens."""

    async def claim(self, execution: str, token: Token, owner: str, *, leased: bool) -> Claim:
        """Claim a token for a worker. With `leased`, no other worker can claim it until the lease expires."""

    async def claim_all(self, execution: str, tokens: Sequence[Token], owner: str) -> list[Claim]:
        """Claim several tokens of pure nodes in one step; each answer is that of a `claim` without a lease."""

    async def renew(self, execution: str, node: int, path: Path, fence: Fence) -> bool:
        """Extend a lease. False if it has expired, belongs to another fence, or the token's region was cancelled. A
        backend that lost its data grants the lease again if the journal has its claim."""

    async def requeue(self, execution: str, token: Token, owner: str, delays: Sequence[int] = ()) -> int:
        """End the lease that a worker has on a token which it did not process.

        With `delays` (ms), count an engine error of this token and attempt, whichever worker it happened in, and refuse
        claims until the delay of this error is over; the scheduler does not resend the token earlier either. Return the
        number of errors; 0 if none was counted, because another worker holds the token or it is done.
        """

    def predict_end(
        self, execution: str, decisions: Sequence[Decision]
    ) -> tuple[FinishExecution, int] | None:
        """Return the end that these decisions lead to, and its time; None unless it is certain without applying
        them. The caller can then record the end together with the result."""

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        """Apply decisions whose facts are recorded."""

    async def apply_all(self, execution: str, runs: Sequence[Sequence[Decision]]) -> Applied:
        """Apply the decisions of several runs, each of which begins with another token of the execution, in as few
        steps as the state can bound. `emitted` is what no run has decided."""

    async def apply_and_claim(
        self, execution: str, decisions: Sequence[Decision], successor: int, owner: str
    ) -> Applied:
        """Apply decisions and, if they emit a token of the node `successor` and no other, claim it for the worker in
        the same step, with a lease. Otherwise it is among `emitted`, as with `apply`."""

    async def control(self, execution: str, fact: PauseChanged | ExecutionLate) -> Applied:
        """Apply a recorded pause or resume, or that the execution is late."""

    async def pause_state(self, execution: str) -> tuple[int, bool]:
        """Return how often an execution was paused or resumed, and whether it is paused now."""

    async def signal(self, execution: str, fact: SignalReceived) -> Applied:
        """Deliver a recorded signal to the longest-waiting token, or store it until a token waits for it."""

    async def waiting_for_signal(self, execution: str) -> list[Listener]:
        """Return the tokens that wait for signals, the longest-waiting first."""

    async def recorded(self, execution: str) -> folded.State:
        """Return the state that the recorded facts of an execution lead to, for reading at once."""

    async def end(self, execution: str, fact: ExecutionEnded) -> None:
        """Mark an execution as ended and drop its state."""

    async def due_timers(self, limit: int) -> list[DueTimer]:
        """Fire due timers and return at most `limit` of them."""

    async def next_due(self) -> int | None:
        """Return when the next timer is due (epoch ms); None if there is none."""

    async def unclaimed_tokens(self, limit: int) -> list[tuple[str, Token, int]]:
        """Return execution, token and priority of tokens that no worker holds and whose hint may be lost. The
        scheduler resends them."""

    async def explain(self, execution: str) -> list[Waiting]:
        """Return what each token of an execution waits for."""

    async def peek(self, execution: str) -> folded.State | None:
        """Return the state of an execution for reading at once; None if it would have to be rebuilt."""
