"""The state of one execution, its joins, and the legal changes of statuses.

The state can always be rebuilt from the journal. A barrier stores one arrival per edge, so a duplicate delivery is
never counted twice. The entry of an item is derived from the results inside the item, so the state stores only one mark
per edge.
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
from rune.core.plan.model import NodePlan, Plan


class LiveToken(msgspec.Struct, gc=False):
    """A token that is not done. A waiting token is resumed by a timer or signal, a parked one when the pause ends."""

    token: Token
    waiting: bool = False
    parked: bool = False
    due: int | None = None
    signal: str | None = None
    deadline: int | None = None
    # The signal that resumed the token. It is routed again if no fact of the token names it.
    received_signal: SignalReceived | None = None

    @property
    def wakes_at(self) -> int | None:
        """When its timer is due; None if only a signal can end the wait."""
        if self.due is None or self.deadline is None:
            return self.due if self.deadline is None else self.deadline
        return min(self.due, self.deadline)


class FanOutState(msgspec.Struct):
    """A running fan-out: a cursor, a window, and a mark per item and edge into the aggregator."""

    count: int
    payload: Ref
    error: Ref | None
    marks: bytearray
    next: int = 0
    ahead: set[int] = set()  # started before the cursor reached them; only during a fold
    in_flight: int = 0
    active: int = 0  # items in flight that are not waiting
    resolved: int = 0
    first: int = 0
    latest: int = 0
    closed: bool = False
    held: bool = False
    last: int = -1  # position of the latest arrival in `marks`


class Scope(msgspec.Struct):
    """The root, or one item of a fan-out: its tokens, its joins, its fan-outs."""

    path: Path
    opened_at: int
    count: int = 0  # live tokens, and one per item in flight
    active: int = 0  # those that are not waiting
    running: bool = False  # counted as active in the enclosing scope
    failed: bool = False  # counted as a failed item
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
    late: bool = False
    paused_at: int | None = None
    pause_state: int = 0
    pauses: list[tuple[int, int]] = []
    cancelled: set[tuple[int, Path]] = set()
    received_signals: set[str] = set()  # ids of received signals
    pending_signals: list[SignalReceived] = []  # signals that no token has consumed, oldest first
    waiting_for_signal: dict[str, dict[tuple[Path, int], int]] = {}  # by signal: token -> waiting since
    failures: int = 0
    failed_items: int = 0
    first_failures: list[tuple[Path, int, Error]] = []
    folding: bool = False

    @property
    def root(self) -> Scope:
        return self.scopes[ROOT]


def in_cancelled_region(plan: Plan, state: State, node: int, path: Path) -> bool:
    """Return whether the token only leads to a race that other branches won."""
    if not state.cancelled:
        return False
    return any(node in plan.nodes[join].region and within(path, outer) for join, outer in state.cancelled)


def paused_since(state: State, since: int) -> int:
    """Return how many ms the execution was paused after a time; timeouts are postponed by it."""
    return sum(max(0, end - max(begin, since)) for begin, end in state.pauses)


def join_waits_since(node: NodePlan, scope: Scope) -> int | None:
    """Return when the timeout of a join began, or None if the join is not waiting."""
    if node.index in scope.done or node.index in scope.live:
        return None
    if node.timeout_from == "scope":
        return scope.opened_at
    if node.joins_items:
        fan = scope.fans.get(node.split_of)
        if fan is None or not fan.resolved:
            return None
        return fan.latest if node.timeout_from == "latest" else fan.first
    barrier = scope.barriers.get(node.index)
    return None if barrier is None else barrier.first


def started(state: State, path: Path) -> bool:
    """Return whether the item of this scope was ever started; a started scope that no longer exists has ended."""
    outer = state.scopes.get(path[:-2])
    if outer is None:
        return bool(path[:-2]) and started(state, path[:-2])
    fan = outer.fans.get(path[-2])
    return fan is not None and (path[-1] < fan.next or path[-1] in fan.ahead)


def may_run(plan: Plan, state: State, node: int) -> bool:
    """Return whether some token of the node has not ended, or may still be emitted, in any scope."""
    splits = plan.scopes.enclosing(node)
    for path, scope in state.scopes.items():
        depth = len(path) // 2
        if path[::2] != splits[:depth]:
            continue
        inner = node if depth == len(splits) else splits[depth]
        if inner not in scope.done:
            if not in_cancelled_region(plan, state, inner, path):
                return True
        elif inner != node and inner in scope.fans:
            fan = scope.fans[inner]
            if fan.next < fan.count and not fan.closed:
                return True
    return False


def own_timer(live: LiveToken) -> Timer:
    """Return the timer of a waiting token."""
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
    return after in NODE_MOVES[before]
