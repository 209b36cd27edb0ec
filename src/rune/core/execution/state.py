"""State: what follows from the facts of one execution. It can always be rebuilt by folding the journal.

Statuses: the states of nodes and executions, and the moves that are legal.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from rune.core.execution.decision import FinishExecution, Timer
from rune.core.execution.fact import SignalReceived
from rune.core.execution.joins import Barrier
from rune.core.execution.outcome import Error
from rune.core.execution.token import ROOT, Path, Ref, Token, within
from rune.core.limits import LIMITS, Limits
from rune.core.plan.model import Plan


class LiveToken(msgspec.Struct, gc=False):
    """A token that is not done. A waiting one is owned by a timer or a signal, a parked one by a resume."""

    token: Token
    waiting: bool = False
    parked: bool = False
    due: int | None = None
    signal: str | None = None
    deadline: int | None = None
    received_signal: SignalReceived | None = None  # what resumed it; given back if no fact of it says so

    @property
    def wakes_at(self) -> int | None:
        """When its timer is due; None where only a signal can end the wait."""
        if self.due is None or self.deadline is None:
            return self.due if self.deadline is None else self.deadline
        return min(self.due, self.deadline)


class FanOutState(msgspec.Struct):
    """A fan-out under way: a cursor, a window, and a mark per item and edge into the aggregator."""

    count: int
    payload: Ref
    error: Ref | None
    marks: bytearray
    next: int = 0
    ahead: set[int] = set()  # started before the cursor reached them; only a fold does that
    in_flight: int = 0
    active: int = 0  # items in flight that do more than wait
    resolved: int = 0
    first: int = 0
    latest: int = 0
    closed: bool = False
    held: bool = False


class Scope(msgspec.Struct):
    """The root, or one item of a fan-out: its tokens, its joins, its fan-outs."""

    path: Path
    opened_at: int
    count: int = 0  # live tokens, and one per item in flight
    active: int = 0  # those of them that do more than wait
    running: bool = False  # counted as active in the scope around
    live: dict[int, LiveToken] = {}
    done: set[int] = set()
    barriers: dict[int, Barrier] = {}
    fans: dict[int, FanOutState] = {}


class State(msgspec.Struct):
    """One execution."""

    scopes: dict[Path, Scope] = {}
    limits: Limits = LIMITS
    started_at: int = 0
    active_items: int = 0
    finish: FinishExecution | None = None
    ended: bool = False
    paused_at: int | None = None
    pause_state: int = 0
    pauses: list[tuple[int, int]] = []
    cancelled: set[tuple[int, Path]] = set()
    heard: set[str] = set()  # signals that are known here
    unheeded: list[SignalReceived] = []  # those that nobody has taken yet, oldest first
    waiting_for_signal: dict[
        str, dict[tuple[Path, int], int]
    ] = {}  # by signal: who waits for it, and since when
    failures: int = 0
    first_failures: list[tuple[Path, int, Error]] = []
    folding: bool = False

    @property
    def root(self) -> Scope:
        return self.scopes[ROOT]


def in_cancelled_region(plan: Plan, state: State, node: int, path: Path) -> bool:
    """Whether a race that others won makes this token pointless."""
    if not state.cancelled:
        return False
    return any(node in plan.nodes[join].region and within(path, around) for join, around in state.cancelled)


def paused_since(state: State, since: int) -> int:
    """How many ms the execution was paused after a moment; its timeouts and those of joins move by it."""
    return sum(max(0, end - max(begin, since)) for begin, end in state.pauses)


def started(state: State, path: Path) -> bool:
    """Whether the item of this scope was ever started: a scope that is gone has ended."""
    outer = state.scopes.get(path[:-2])
    if outer is None:
        return bool(path[:-2]) and started(state, path[:-2])
    fan = outer.fans.get(path[-2])
    return fan is not None and (path[-1] < fan.next or path[-1] in fan.ahead)


def own_timer(live: LiveToken) -> Timer:
    """The timer that owns a waiting token."""
    token = live.token
    if token.resumed:
        return Timer("wait", token.node, token.path)
    return Timer("retry", token.node, token.path, token.attempt)


NodeStatus = Literal["pending", "queued", "running", "waiting", "completed", "failed", "skipped", "cancelled"]
ExecutionStatus = Literal["accepted", "running", "paused", "completed", "failed", "halted", "cancelled"]

NODE_MOVES: dict[NodeStatus, frozenset[NodeStatus]] = {
    "pending": frozenset({"queued", "skipped", "cancelled"}),
    "queued": frozenset({"running", "failed", "cancelled"}),
    "running": frozenset({"completed", "failed", "waiting", "queued", "cancelled"}),
    "waiting": frozenset({"queued", "failed", "cancelled"}),
    "completed": frozenset(),
    "failed": frozenset(),
    "skipped": frozenset(),
    "cancelled": frozenset(),
}

EXECUTION_MOVES: dict[ExecutionStatus, frozenset[ExecutionStatus]] = {
    "accepted": frozenset({"running", "paused", "completed", "failed", "halted", "cancelled"}),
    "running": frozenset({"paused", "completed", "failed", "halted", "cancelled"}),
    "paused": frozenset({"running", "completed", "failed", "halted", "cancelled"}),
    "completed": frozenset(),
    "failed": frozenset(),
    "halted": frozenset(),
    "cancelled": frozenset(),
}

TERMINAL: frozenset[ExecutionStatus] = frozenset(
    status for status, moves in EXECUTION_MOVES.items() if not moves
)


def may_move(before: NodeStatus, after: NodeStatus) -> bool:
    """Whether a node may go from one state to another."""
    return after in NODE_MOVES[before]
