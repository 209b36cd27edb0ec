"""The state of every node and edge of one scope, for display: the root of an execution, or one item of a split.

Results are facts. Skips are not: a node is skipped if all edges into it are dead. The rules are those of routing; here
they are applied to one scope at a time, from the outcome of each of its nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, get_args

import msgspec

from rune.core.execution.fact import NodeResult
from rune.core.execution.joins import join_verdict
from rune.core.execution.routing import routes
from rune.core.execution.token import ROOT, TokenPurpose
from rune.core.plan.model import NodePlan, Plan

NodeState = Literal[
    "pending",
    "queued",
    "running",
    "waiting",
    "retrying",
    "success",
    "failed",
    "skipped",
    "cancelled",
    "not_reached",
]
STATES: tuple[NodeState, ...] = get_args(NodeState)
"""The states of a node; by the facts alone, `queued` is queued or running. In packed form a state is its position in
this list."""

PENDING, QUEUED, RUNNING, WAITING, RETRYING, SUCCESS, FAILED, SKIPPED, CANCELLED, NOT_REACHED = range(10)
OPEN = frozenset({PENDING, QUEUED, RUNNING, WAITING, RETRYING})
ENDED = frozenset({SUCCESS, FAILED, SKIPPED, CANCELLED})
_WORST_FIRST = (FAILED, CANCELLED, RETRYING, WAITING, RUNNING, QUEUED, PENDING, NOT_REACHED, SUCCESS, SKIPPED)
BY_STATUS = {"ok": SUCCESS, "failed": FAILED, "skipped": SKIPPED, "cancelled": CANCELLED}

EdgeState = Literal["pending", "alive", "dead", "error"]


class Outcome(msgspec.Struct, frozen=True):
    """What is recorded of a node in one scope. `empty`: a fan-out without items."""

    status: str = ""
    outlet: str | None = None
    empty: bool = False


NOTHING = Outcome()
OPENED = 1  # a race whose winner is recorded
FIXED_OUTCOMES = (NOTHING, Outcome("opened"), Outcome("running"), Outcome("waiting"), Outcome("retrying"))
"""Outcomes by their number; the numbers of `running`, `waiting` and `retrying` are those of the states."""


class ScopeStates(msgspec.Struct, frozen=True):
    """The states of the nodes of a scope in the given order, of the edges that begin in it, and the worst state.

    `open`: something in it has not ended. `failed`: the engine counts the item as failed, because an error in it that
    no node handles reached its aggregator, or no aggregator collects it.
    """

    states: tuple[int, ...]
    edges: Mapping[int, EdgeState]
    worst: int
    open: bool
    failed: bool = False


def states_of(
    plan: Plan,
    nodes: Sequence[int],
    outcomes: Sequence[Outcome],
    *,
    started: bool,
    open_splits: Collection[int] = (),
    split: int = -1,
) -> ScopeStates:
    """Return the states of a scope whose nodes are given in topological order. `open_splits` have items that are not
    done, `split` is the split whose item this is."""
    scope = _Scope(plan, started, open_splits, split)
    states = tuple(scope.resolve(node, outcome) for node, outcome in zip(nodes, outcomes, strict=True))
    reached = set(states)
    worst = next((each for each in _WORST_FIRST if each in reached), SUCCESS)
    is_open = not reached.isdisjoint(OPEN)
    if is_open and worst not in (FAILED, CANCELLED):
        worst = _open_state(reached, started=started)
    elif reached == {SKIPPED}:
        worst = SKIPPED
    own = {edge: state for edge, state in scope.edges.items() if split < 0 or plan.src[edge] != split}
    return ScopeStates(states, own, worst, is_open, scope.failed)


def _open_state(reached: set[int], *, started: bool) -> int:
    """Return the state of an item that is not done."""
    for each in (RETRYING, WAITING):
        if each in reached and QUEUED not in reached and RUNNING not in reached:
            return each
    return RUNNING if started else PENDING


class _Scope:
    """Resolves the nodes of one scope in topological order."""

    def __init__(self, plan: Plan, started: bool, open_splits: Collection[int], split: int) -> None:
        self.edges: dict[int, EdgeState] = {}
        self.failed = False
        self._plan = plan
        self._started = started
        self._open_splits = open_splits
        self._split = split
        self._states: dict[int, int] = {}
        self._blamed: set[int] = set()  # nodes whose dead edges carry an error that nothing handled
        self._decided_by: dict[int, int] = {}  # a skipped node, and the node whose decision skipped it
        if split >= 0:
            self.edges.update(dict.fromkeys(plan.nodes[split].success, "alive" if started else "pending"))

    def resolve(self, index: int, outcome: Outcome) -> int:
        """Return the state of the next node."""
        node = self._plan.nodes[index]
        if outcome.status in BY_STATUS:
            state = BY_STATUS[outcome.status]
        elif outcome.status in STATES:
            state = STATES.index(outcome.status)
        else:
            state = QUEUED if outcome.status == "opened" else self._derived(node)
        self._states[index] = state
        if state == SKIPPED:
            self._skip(node, recorded=bool(outcome.status))
        self._resolve_edges(node, state, outcome)
        return state

    def _derived(self, node: NodePlan) -> int:
        if node.index in self._plan.triggers and self._started:
            return SUCCESS
        if node.joins_items:
            return self._aggregator_state(node)
        if not node.in_edges:
            return QUEUED if self._started else PENDING
        arrived = [self.edges.get(edge, "pending") for edge in node.in_edges]
        dead = arrived.count("dead")
        live = len(arrived) - dead - arrived.count("pending")
        if not node.is_join:
            if live:
                return QUEUED
            return SKIPPED if dead == len(arrived) else PENDING
        purpose = join_verdict(node.opens, len(arrived), live, live + dead)
        if purpose is TokenPurpose.SKIP:
            return QUEUED if self._records_skip(node) else SKIPPED
        return PENDING if purpose is None else QUEUED

    def _aggregator_state(self, node: NodePlan) -> int:
        """Return the state of an aggregator without a result: it waits for the items of its split."""
        of_split = self._states.get(node.split_of, PENDING)
        split = self._plan.nodes[node.split_of]
        if of_split in (SKIPPED, CANCELLED) or (of_split == FAILED and split.policy in ("collect", "branch")):
            return QUEUED if node.timeout is not None and node.timeout_from == "scope" else SKIPPED
        if of_split in OPEN or node.split_of in self._open_splits or self._halts(split, of_split):
            return PENDING
        return QUEUED

    def _records_skip(self, node: NodePlan) -> bool:
        """Whether the skip of a join will be a fact: it may expire meanwhile, unless one decision kills all its edges
        at once."""
        if node.timeout is None:
            return False
        return node.timeout_from == "scope" or len({self._killer(edge) for edge in node.in_edges}) > 1

    def _killer(self, edge: int) -> int:
        """Return the node whose decision killed an edge."""
        node = self._plan.src[edge]
        return self._decided_by.get(node, node)

    def _skip(self, node: NodePlan, *, recorded: bool) -> None:
        sources = (node.split_of,) if node.joins_items else [self._plan.src[edge] for edge in node.in_edges]
        if not self._blamed.isdisjoint(sources):
            self._blamed.add(node.index)
        deciders = {self._decided_by.get(each, each) for each in sources}
        if len(deciders) == 1 and not recorded:
            self._decided_by[node.index] = deciders.pop()

    def _halts(self, node: NodePlan, state: int) -> bool:
        """Whether a node ended the execution: what follows it is not routed."""
        return state == FAILED and node.policy == "halt"

    def _resolve_edges(self, node: NodePlan, state: int, outcome: Outcome) -> None:
        """Set the states of the edges out of a node."""
        if state in OPEN or self._halts(node, state):
            self.edges.update(dict.fromkeys(node.out, "pending"))
            return
        if state == FAILED and node.policy == "collect":
            self._blamed.add(node.index)
            self.failed = self.failed or (self._split >= 0 and not node.listed)
        live = set(self._live_edges(node, state, outcome))
        for edge in node.out:
            self.edges[edge] = (
                "dead" if edge not in live else "error" if edge in node.error_edges else "alive"
            )
            target = self._plan.nodes[self._plan.dst[edge]]
            if edge not in live and node.index in self._blamed and target.joins_items:
                self.failed = self.failed or (self._split >= 0 and target.split_of == self._split)

    def _live_edges(self, node: NodePlan, state: int, outcome: Outcome) -> Sequence[int]:
        if outcome.status not in BY_STATUS:
            return node.normal[0] if state == SUCCESS else ()
        if node.fans_out and (outcome.status == "ok" or (state == FAILED and node.policy == "ignore")):
            return node.success if outcome.status == "ok" and not outcome.empty else ()
        return routes(node, _result(node, outcome)).alive


def _result(node: NodePlan, outcome: Outcome) -> NodeResult:
    return NodeResult(node.index, ROOT, 0, outcome.status, outlet=outcome.outlet)  # type: ignore[arg-type]
