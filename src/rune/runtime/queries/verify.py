"""The audit: folds the journal of one execution itself and trusts nothing else.

It asks whether what is written could have been written by the rules: each token ended at most once, each fact
has a token that the rules emit, each join opened once, one terminal row, where the fold leads, and nothing
behind it that is not marked late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from rune.core.execution.decision import FinishExecution
from rune.core.execution.fact import (
    AttemptFailed,
    EffectStarted,
    ExecutionEnded,
    ExecutionStarted,
    Fact,
    NodeResult,
    NodeSuspended,
    PauseChanged,
    RaceWinner,
    SignalReceived,
    TokenFact,
    fact_key,
)
from rune.core.execution.fold import fold
from rune.core.execution.state import State, started
from rune.core.execution.token import Path, token_name
from rune.core.plan.model import Plan
from rune.ports.journal import ExecutionRecord, StoredFact
from rune.ports.queries import Summary

Key = tuple[int, Path]
Claims = Mapping[Key, int]
ABOUT_EXECUTION = ExecutionStarted | SignalReceived | PauseChanged | ExecutionEnded

FROM_OUTSIDE = frozenset({"DEAD_LETTERED", "WORKER_CRASH", "UNKNOWN_TYPE"})
"""Ends that no fact of the execution leads to: a message of it could not be handled."""


class Violation(msgspec.Struct, frozen=True):
    """Something that the rules cannot have written."""

    rule: str
    subject: str
    message: str


class VerificationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in one execution."""

    execution_id: str
    workflow_id: str
    status: str
    facts: int
    results: int
    retries: int
    waits: int
    joins: int  # results of joins
    skipped: int
    open: int  # tokens that are not done
    late: int
    effects: int  # results of nodes that reach outside
    claims: int  # how often such nodes were claimed
    repeated: int  # effectful tokens claimed more often than tried: an effect may have been made twice
    violations: tuple[Violation, ...] = ()


def verify_execution(
    plan: Plan, accepted: ExecutionRecord, stored: Sequence[StoredFact], claims: Claims, summary: Summary
) -> VerificationReport:
    """Examine one execution."""
    facts = [each.fact for each in stored if not each.late]
    known = [each for each in facts if not isinstance(each, ExecutionEnded | ExecutionStarted)]
    state, applied = fold(plan, [ExecutionStarted(accepted.at), *known], accepted.at)
    skipped = set(applied.skipped)
    subject = JournalVerifier(plan, facts, state, skipped, claims)
    end = next((each for each in facts if isinstance(each, ExecutionEnded)), None)
    results = [each for each in facts if isinstance(each, NodeResult) and each.status != "skipped"]
    effects = [each for each in results if _made_effect(plan, each)]
    running = sum(len(scope.live) for scope in state.scopes.values())
    return VerificationReport(
        execution_id=accepted.id,
        workflow_id=accepted.workflow,
        status=end.status if end else "running",
        facts=len(stored),
        results=len(results),
        retries=sum(isinstance(each, AttemptFailed) for each in facts),
        waits=sum(isinstance(each, NodeSuspended) for each in facts),
        joins=sum(_is_join(plan, each) for each in results),
        skipped=len(skipped),
        open=0 if end else running,
        late=len(stored) - len(facts),
        effects=len(effects),
        claims=sum(claims.values()),
        repeated=sum(claims.get((each.node, each.path), 0) > subject.tries(each) for each in effects),
        violations=(
            *subject.once(),
            *subject.placed(),
            *subject.joined(),
            *subject.claimed(effects),
            *subject.heard(),
            *_ending(plan, stored, state.finish, summary),
        ),
    )


def _is_join(plan: Plan, result: NodeResult) -> bool:
    node = plan.nodes[result.node]
    return node.is_join or node.joins_items


def _made_effect(plan: Plan, result: NodeResult) -> bool:
    """Whether the node itself ran and reached outside: what the engine detected may have no claim."""
    if plan.nodes[result.node].pure or result.status == "cancelled" or result.kept:
        return False
    return result.failure is None or not result.failure.engine


class JournalVerifier:
    def __init__(
        self, plan: Plan, facts: list[Fact], state: State, skipped: set[Key], claims: Claims
    ) -> None:
        self._plan = plan
        self._facts = facts
        self._state = state
        self._skipped = skipped
        self._claims = claims
        self._suspended = Counter((each.node, each.path) for each in facts if isinstance(each, NodeSuspended))

    def tries(self, result: NodeResult) -> int:
        """How many claims a result explains: its attempts, and one more for each time it was resumed."""
        return result.attempt + self._suspended[(result.node, result.path)]

    def _violation(self, rule: str, fact: TokenFact, message: str) -> Violation:
        return Violation(rule, token_name(fact.node, fact.path, self._plan.ids), message)

    def once(self) -> Iterator[Violation]:
        """The same fact twice."""
        seen: set[object] = set()
        for fact in self._facts:
            key = fact_key(fact)
            if key in seen:
                where = (
                    "execution"
                    if isinstance(fact, ABOUT_EXECUTION)
                    else token_name(fact.node, fact.path, self._plan.ids)
                )
                yield Violation("once", where, f"a second {key[0]} row")
            seen.add(key)

    def placed(self) -> Iterator[Violation]:
        """Facts of tokens that the rules never emit."""
        for fact in self._facts:
            if isinstance(fact, ABOUT_EXECUTION | EffectStarted):
                continue
            why = self._unplaced(fact)
            if why:
                yield self._violation("placed", fact, why)

    def _unplaced(self, fact: TokenFact) -> str:
        node = self._plan.nodes[fact.node] if 0 <= fact.node < len(self._plan.nodes) else None
        if node is None:
            return "no such node"
        if node.index in self._plan.triggers:
            return "a trigger has no token"
        if len(fact.path) != 2 * node.depth or (fact.path and fact.path[-2] != node.split):
            return "the node does not live in this scope"
        scope = self._state.scopes.get(fact.path)
        if scope is None and not started(self._state, fact.path):
            return "its item was never started"
        skipped = (fact.node, fact.path) in self._skipped
        if skipped and not (isinstance(fact, NodeResult) and fact.status == "skipped"):
            return "the rules skip this node here"
        if scope is not None and fact.node not in scope.done:
            if isinstance(fact, NodeResult):
                return "nothing has led to it"
            if fact.node not in scope.live:
                return "no token of it is live"
        return ""

    def joined(self) -> Iterator[Violation]:
        """Openings of joins: by edges of their own, each once, and as chosen."""
        choices = {(each.node, each.path): each for each in self._facts if isinstance(each, RaceWinner)}
        for fact in self._facts:
            if not isinstance(fact, NodeResult) or not fact.arrived:
                continue
            edges = [each.edge for each in fact.arrived]
            if len(set(edges)) != len(edges) or not set(edges) <= set(self._plan.nodes[fact.node].in_edges):
                yield self._violation("joined", fact, "opened by edges that are not its own, or twice by one")
            choice = choices.get((fact.node, fact.path))
            if choice is not None and choice.arrived != fact.arrived and fact.status != "failed":
                yield self._violation("joined", fact, "ran with other parties than were chosen")

    def heard(self) -> Iterator[Violation]:
        """Signals that were taken without having come, or more than once."""
        came = {each.id for each in self._facts if isinstance(each, SignalReceived)}
        taken: set[str] = set()
        for fact in self._facts:
            if not isinstance(fact, NodeResult | AttemptFailed) or fact.signal is None:
                continue
            if isinstance(fact, NodeResult) and fact.kept:
                continue
            if fact.signal in taken:
                yield self._violation("heard", fact, f"took signal {fact.signal}, which was taken before")
            elif fact.signal not in came:
                yield self._violation("heard", fact, f"took signal {fact.signal}, which never came")
            taken.add(fact.signal)

    def claimed(self, effects: Sequence[NodeResult]) -> Iterator[Violation]:
        """Results of nodes that reach outside without anybody having claimed them."""
        for result in effects:
            if not self._claims.get((result.node, result.path)):
                yield self._violation("claimed", result, "has a result, and nobody claimed it")


def _ending(
    plan: Plan, stored: Sequence[StoredFact], led: FinishExecution | None, summary: Summary
) -> Iterator[Violation]:
    ends = [each for each in stored if isinstance(each.fact, ExecutionEnded) and not each.late]
    if len(ends) > 1:
        yield Violation("ended", "execution", f"{len(ends)} terminal rows")
    terminal = ends[0] if ends else None
    last = terminal.number if terminal else None
    behind = sum(not each.late and last is not None and each.number > last for each in stored)
    before = sum(each.late and (last is None or each.number < last) for each in stored)
    if behind:
        yield Violation(
            "ended", "execution", f"{behind} facts behind the terminal row that are not marked late"
        )
    if before:
        yield Violation("ended", "execution", f"{before} facts marked late before any end")
    end = terminal.fact if terminal else None
    marked = summary.status if summary.ended_at is not None else None
    if marked != (end.status if isinstance(end, ExecutionEnded) else None):
        yield Violation("ended", "execution", f"its row says {marked or 'running'}, its facts say otherwise")
    if isinstance(end, ExecutionEnded):
        message = _elsewhere(plan, end, led)
        if message:
            yield Violation("ended", "execution", message)


def _elsewhere(plan: Plan, end: ExecutionEnded, led: FinishExecution | None) -> str:
    """Why the end is not where the facts lead; empty if it is."""
    if end.status == "cancelled":
        return ""
    code = end.error.code if end.error else None
    overdue = code == "TIMEOUT" and plan.timeout is not None
    if end.status == "failed" and (overdue or code in FROM_OUTSIDE):
        return ""
    if led is None:
        return f"ended as {end.status}, but the facts leave something to do"
    if led.status != end.status and not {led.status, end.status} <= {"failed", "halted"}:
        return f"ended as {end.status}, the facts lead to {led.status}"
    return ""
