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
_WORST_FIRST = (FAILED, CANCELLED, RETRYING, WAITING, RUNNING, QUEUED, PENDING, NOT_REACHED, SUCCESS, SKIPPED)
_BY_STATUS = {"ok": SUCCESS, "failed": FAILED, "skipped": SKIPPED, "cancelled": CANCELLED}

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
    """The states of the nodes of a scope in the given order, of the edges that begin in it, and the worst state."""

    states: tuple[int, ...]
    edges: Mapping[int, EdgeState]
    worst: int
    open: bool


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
    edges: dict[int, EdgeState] = {}
    entered: EdgeState = "alive" if started else "pending"
    if split >= 0:
        edges.update(dict.fromkeys(plan.nodes[split].success, entered))
    states: dict[int, int] = {}
    recorded = dict(zip(nodes, outcomes, strict=True))
    cancelled = _cancelled_nodes(plan, recorded)
    for node in nodes:
        planned, outcome = plan.nodes[node], recorded[node]
        if outcome.status in _BY_STATUS:
            state = _BY_STATUS[outcome.status]
        elif node in cancelled:
            state = CANCELLED
        elif outcome.status in STATES:
            state = STATES.index(outcome.status)
        elif outcome.status == "opened":
            state = QUEUED
        else:
            state = _derived(plan, planned, states, edges, open_splits, started=started)
        states[node] = state
        _resolve(planned, state, outcome, edges)
    found = set(states.values())
    worst = next((each for each in _WORST_FIRST if each in found), SUCCESS)
    opened = not found.isdisjoint(OPEN)
    if opened and worst not in (FAILED, CANCELLED):
        worst = _open_state(found, started=started)
    elif found == {SKIPPED}:
        worst = SKIPPED
    own = {edge: state for edge, state in edges.items() if split < 0 or plan.src[edge] != split}
    return ScopeStates(tuple(states[node] for node in nodes), own, worst, opened)


def _open_state(found: set[int], *, started: bool) -> int:
    """Return the state of an item that is not done."""
    for each in (RETRYING, WAITING):
        if each in found and QUEUED not in found and RUNNING not in found:
            return each
    return RUNNING if started else PENDING


def _cancelled_nodes(plan: Plan, recorded: Mapping[int, Outcome]) -> set[int]:
    """Return the nodes that only lead to a race which other branches won."""
    found: set[int] = set()
    for node, outcome in recorded.items():
        if outcome.status in ("ok", "failed", "opened") and plan.nodes[node].region:
            found |= plan.nodes[node].region
    return found


def _derived(
    plan: Plan,
    node: NodePlan,
    states: Mapping[int, int],
    edges: Mapping[int, EdgeState],
    open_splits: Collection[int],
    *,
    started: bool,
) -> int:
    if node.index in plan.triggers and started:
        return SUCCESS
    if node.joins_items:
        return _aggregator_state(node, states, open_splits)
    arrived = [edges.get(edge, "pending") for edge in node.in_edges]
    live = sum(each in ("alive", "error") for each in arrived)
    if not node.in_edges:
        return QUEUED if started else PENDING
    if not node.is_join:
        if live:
            return QUEUED
        return SKIPPED if arrived.count("dead") == len(arrived) else PENDING
    purpose = join_verdict(node.opens, len(arrived), live, live + arrived.count("dead"))
    if purpose is TokenPurpose.SKIP:
        return SKIPPED
    return PENDING if purpose is None else QUEUED


def _aggregator_state(node: NodePlan, states: Mapping[int, int], open_splits: Collection[int]) -> int:
    """Return the state of an aggregator without a result: it waits for the items of its split."""
    of_split = states.get(node.split_of, PENDING)
    if of_split in (SKIPPED, CANCELLED):
        return SKIPPED
    if of_split in OPEN or node.split_of in open_splits:
        return PENDING
    return QUEUED


def _resolve(node: NodePlan, state: int, outcome: Outcome, edges: dict[int, EdgeState]) -> None:
    """Set the states of the edges out of a node."""
    if state in OPEN:
        edges.update(dict.fromkeys(node.out, "pending"))
        return
    alive: Sequence[int] = ()
    if outcome.status in _BY_STATUS and not (outcome.status == "failed" and node.policy == "halt"):
        if node.fans_out and (outcome.status == "ok" or node.policy == "ignore"):
            alive = () if outcome.empty or outcome.status != "ok" else node.success
        else:
            alive = routes(node, _result(node, outcome)).alive
    elif state == SUCCESS:
        alive = node.normal[0]
    live = set(alive)
    for edge in node.out:
        edges[edge] = "dead" if edge not in live else "error" if edge in node.error_edges else "alive"


def _result(node: NodePlan, outcome: Outcome) -> NodeResult:
    return NodeResult(node.index, ROOT, 0, outcome.status, outlet=outcome.outlet)  # type: ignore[arg-type]
