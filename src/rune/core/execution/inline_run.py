"""A run in place: a token and the pure ones behind it, decided in memory and committed together.

Nobody sees any of it before the commit. It stops at a node with effects, one of another queue, a suspension, a
fan-out, a join whose parties are not all resolved inside the run, and at its bounds; what is left is sent.

Foresight: what decisions that are not applied yet will lead to, where that is certain from here.

Knowing it, the last fact, the terminal row and the time of the next waking go into one act of the journal.
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

MAX_RESULTS = 256


class InlineRun:
    """The decisions of one run, in order. `next` answers the token to run now."""

    def __init__(self, plan: Plan, first: Token, *, in_place: bool = True, bound: int = MAX_RESULTS) -> None:
        self.decisions: list[Decision] = []
        self._plan = plan
        self._ready: deque[Token] = deque([first])
        self._queue = plan.nodes[first.node].node.queue
        self._in_place = in_place
        self._bound = bound
        self._barriers: dict[int, Barrier] = {}

    def next(self) -> Token | None:
        """The next token that may run in place, or None when the run is over."""
        if not self._ready or len(self.decisions) >= self._bound:
            return None
        return self._ready.popleft()

    def add(self, decision: Decision) -> None:
        """Take a decision into the run and see what can follow in place."""
        self.decisions.append(decision)
        if not self._in_place or type(decision.fact) is not NodeResult:
            return
        for effect in decision.effects:
            if type(effect) is EmitToken and self._is_ours(self._plan.nodes[effect.node]):
                self._ready.append(Token(effect.node, decision.path, effect.payload, effect.error))
            elif type(effect) is ArriveAtJoin:
                self._arrive(effect, decision)
            elif type(effect) is FinishExecution:
                self._ready.clear()
                self._in_place = False

    def _is_ours(self, node: NodePlan) -> bool:
        """Whoever serves this queue may not serve the other."""
        return node.pure and node.node.queue == self._queue

    def _arrive(self, effect: ArriveAtJoin, decision: Decision) -> None:
        node = self._plan.nodes[self._plan.dst[effect.edge]]
        barrier = self._barriers.setdefault(node.index, Barrier())
        barrier.arrivals[effect.edge] = Arrival(effect.alive, effect.payload, effect.error, decision.at)
        # Only where every party is known here is the answer the one that the state will give.
        if len(barrier.arrivals) < len(node.in_edges) or node.opens != "all" or node.region:
            return
        if not self._is_ours(node):
            return
        if (
            join_verdict(node.opens, len(node.in_edges), len(barrier.live()), len(barrier.arrivals))
            is TokenPurpose.RUN
        ):
            self._ready.append(opened_token(self._plan, node, barrier, decision.path, TokenPurpose.RUN))

    def remaining(self, emitted: Iterable[Token]) -> list[Token]:
        """Of what the commit emitted, the tokens that the run has not already decided."""
        return undecided(self.decisions, emitted)


def undecided(decisions: Sequence[Decision], emitted: Iterable[Token]) -> list[Token]:
    """Of what decisions emitted when they were applied, the tokens that are not among those they decide."""
    decided = {(each.node, each.path): each.fact for each in decisions}
    return [token for token in emitted if not _is_decided(token, decided)]


def _is_decided(token: Token, decided: dict[tuple[int, Path], TokenFact | None]) -> bool:
    """One that was suspended, or failed and waits for another try, goes on if what it waits for has come already."""
    if token.fate is not TokenPurpose.RUN or token.key not in decided:
        return False
    fact = decided[token.key]
    if type(fact) is NodeSuspended:
        return not token.resumed
    return type(fact) is not AttemptFailed or token.attempt == fact.attempt


COMPLETED = FinishExecution("completed")


def predict_end(state: State, decisions: Sequence[Decision]) -> FinishExecution | None:
    """The end that applying these decisions brings, if nothing else of the execution is under way and nothing of them
    stays open. None means: apply them and see."""
    if not _is_only_activity(state, decisions) or state.failures:
        return None
    return predict_single_end(decisions)


def predict_single_end(decisions: Sequence[Decision]) -> FinishExecution | None:
    """The same where the token that they begin with is known to be all there is, and nothing has failed."""
    return COMPLETED if type(decisions[-1].fact) is NodeResult and _stays_inside(decisions) else None


def predict_sleep(state: State, decisions: Sequence[Decision]) -> int | None:
    """Until when the execution can do nothing once these decisions are applied; None where that is not certain."""
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
    """Whether everything that the decisions emit is decided by them too, and the last alone may be something else
    than a result."""
    decided = {each.node for each in decisions}
    for decision in decisions:
        if decision.path or (type(decision.fact) is not NodeResult and decision is not decisions[-1]):
            return False
        for effect in decision.effects:
            if type(effect) is not SkipNode and not (type(effect) is EmitToken and effect.node in decided):
                return False
    return True
