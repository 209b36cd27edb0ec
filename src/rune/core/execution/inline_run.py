"""Run a token and its pure successors in memory, and commit their decisions together.

An inline run stops at a node with effects or of another queue, a suspension, a fan-out, a join with edges that are
resolved outside of the run, and at `MAX_INLINE_RESULTS`; the remaining tokens are sent. The end or the next wake-up
that its decisions lead to is predicted where it is certain, so that it is written in the same journal transaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from rune.core.execution.decision import ArriveAtJoin, Decision, EmitToken, FinishExecution, SkipNode
from rune.core.execution.fact import AttemptFailed, NodeResult, NodeSuspended, TokenFact
from rune.core.execution.joins import Arrival, Barrier, join_verdict, opened_token
from rune.core.execution.state import State
from rune.core.execution.token import ROOT, Path, Token, TokenPurpose
from rune.core.plan.model import NodePlan, Plan

MAX_INLINE_RESULTS = 256
COMPLETED = FinishExecution("completed")


class InlineRun:
    """The decisions of one run, in order. `next` returns the token to run now."""

    def __init__(
        self, plan: Plan, first: Token, *, in_place: bool = True, bound: int = MAX_INLINE_RESULTS
    ) -> None:
        self.decisions: list[Decision] = []
        self._plan = plan
        self._first = first
        self._ready: deque[Token] = deque((first,))
        self._in_place = in_place
        self._bound = bound
        self._barriers: dict[int, Barrier] = {}

    def next(self) -> Token | None:
        """Return the next token of the run, or None if the run is over."""
        if not self._ready or len(self.decisions) >= self._bound:
            return None
        return self._ready.popleft()

    def add(self, decision: Decision) -> None:
        """Add a decision and queue the successors that can run inline."""
        self.decisions.append(decision)
        if not self._in_place or type(decision.fact) is not NodeResult:
            return
        for effect in decision.effects:
            if type(effect) is EmitToken and self._runs_inline(self._plan.nodes[effect.node]):
                self._ready.append(Token(effect.node, decision.path, effect.payload, effect.error))
            elif type(effect) is ArriveAtJoin:
                self._arrive(effect, decision)
            elif type(effect) is FinishExecution:
                self._ready.clear()
                self._in_place = False

    def _runs_inline(self, node: NodePlan) -> bool:
        """Return whether this worker may run the node inline: it may not serve another queue."""
        return node.pure and node.node.queue == self._plan.nodes[self._first.node].node.queue

    def _arrive(self, effect: ArriveAtJoin, decision: Decision) -> None:
        node = self._plan.nodes[self._plan.dst[effect.edge]]
        barrier = self._barriers.setdefault(node.index, Barrier())
        barrier.arrivals[effect.edge] = Arrival(effect.alive, effect.payload, effect.error, decision.at)
        # Only if all edges are resolved inside the run does the state come to the same verdict.
        if len(barrier.arrivals) < len(node.in_edges) or node.opens != "all" or node.region:
            return
        if not self._runs_inline(node):
            return
        verdict = join_verdict(node.opens, len(node.in_edges), len(barrier.live()), len(barrier.arrivals))
        if verdict is TokenPurpose.RUN:
            self._ready.append(opened_token(self._plan, node, barrier, decision.path, TokenPurpose.RUN))

    def remaining(self, emitted: Iterable[Token]) -> list[Token]:
        """Return the emitted tokens that the run has not decided."""
        return undecided(self.decisions, emitted)


def undecided(decisions: Sequence[Decision], emitted: Iterable[Token]) -> list[Token]:
    """Return the emitted tokens that none of the decisions decides."""
    decided = {(decision.node, decision.path): decision.fact for decision in decisions}
    return [token for token in emitted if not _is_decided(token, decided)]


def _is_decided(token: Token, decided: dict[tuple[int, Path], TokenFact | None]) -> bool:
    """Return whether a decision covers the token. A suspended or retried token may have been resumed at once."""
    key = (token.node, token.path)
    if token.fate is not TokenPurpose.RUN or key not in decided:
        return False
    fact = decided[key]
    if type(fact) is NodeSuspended:
        return not token.resumed
    return type(fact) is not AttemptFailed or token.attempt == fact.attempt


def only_successor(decisions: Sequence[Decision]) -> int | None:
    """Return the node of the only token that follows from these results and that none of them decides; None if there is
    none or there are several, or if a join, a split or an end of items takes part in it."""
    decided = {decision.node for decision in decisions}
    successor: int | None = None
    for decision in decisions:
        if type(decision.fact) is not NodeResult:
            return None
        for effect in decision.effects:
            if type(effect) is SkipNode or (type(effect) is EmitToken and effect.node in decided):
                continue
            if type(effect) is not EmitToken or successor is not None:
                return None
            successor = effect.node
    return successor


def pure_items(plan: Plan) -> frozenset[int]:
    """Return the nodes inside of splits from which on an item has only pure nodes of one queue, up to its end: neither
    effects, nor waits, nor items of its own."""
    pure: set[int] = set()
    for index in reversed(plan.graph.order):
        node = plan.nodes[index]
        if node.split < 0 or node.fans_out or node.joins_items or not node.pure or node.type.suspends:
            continue
        end = plan.nodes[node.split].aggregator
        successors = {plan.dst[edge] for edge in node.out} - {end}
        if successors <= pure and all(
            plan.nodes[successor].node.queue == node.node.queue for successor in successors
        ):
            pure.add(index)
    return frozenset(pure)


def predict_end(state: State, decisions: Sequence[Decision]) -> FinishExecution | None:
    """Return the end that these decisions lead to if no other token is live; None if that is not certain."""
    if not _is_only_activity(state, decisions) or state.failures:
        return None
    return predict_single_end(decisions, state.failed_items)


def predict_single_end(decisions: Sequence[Decision], failed_items: int = 0) -> FinishExecution | None:
    """Return the end if the first token is known to be the only live one and an aggregator lists every failed item."""
    if type(decisions[-1].fact) is not NodeResult or not _stays_inside(decisions):
        return None
    return FinishExecution("completed", failed_items=failed_items) if failed_items else COMPLETED


def predict_sleep(state: State, decisions: Sequence[Decision]) -> int | None:
    """Return when the execution resumes after these decisions (epoch ms); None if that is not certain."""
    last = decisions[-1].fact
    if type(last) is not NodeSuspended or last.signal is not None or not _is_only_activity(state, decisions):
        return None
    return last.due if _stays_inside(decisions) else None


def _is_only_activity(state: State, decisions: Sequence[Decision]) -> bool:
    root = state.scopes.get(ROOT)
    if root is None or root.count != 1 or len(state.scopes) != 1 or state.finish is not None:
        return False
    return decisions[0].node in root.live


def _stays_inside(decisions: Sequence[Decision]) -> bool:
    """Return whether the decisions cover every token they emit, and all but the last are results."""
    decided = {decision.node for decision in decisions}
    for decision in decisions:
        if decision.path or (type(decision.fact) is not NodeResult and decision is not decisions[-1]):
            return False
        for effect in decision.effects:
            if type(effect) is not SkipNode and not (type(effect) is EmitToken and effect.node in decided):
                return False
    return True
