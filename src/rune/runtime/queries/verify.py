"""Verifies the journal of one execution by replaying it.

Checks that the rules can have produced the recorded facts: each token ended at most once, each fact belongs to a token
that the rules emit, each join opened once, and one terminal row agrees with the replay and is followed only by facts
marked late.
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
    ExecutionLate,
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
from rune.ports.journal import ExecutionRecord, StoredFact, dead_letter_code
from rune.ports.queries import Summary

Key = tuple[int, Path]
Claims = Mapping[Key, int]
ABOUT_EXECUTION = ExecutionStarted | SignalReceived | PauseChanged | ExecutionLate | ExecutionEnded


class Violation(msgspec.Struct, frozen=True):
    """A recorded fact that the rules cannot have produced."""

    rule: str
    subject: str
    message: str


class VerificationReport(msgspec.Struct, frozen=True, kw_only=True):
    """Counts and violations of one execution."""

    execution_id: str
    workflow_id: str
    status: str
    facts: int
    results: int
    retries: int
    waits: int
    joins: int  # results of joins
    skipped: int
    open: int  # unfinished tokens
    late: int
    effects: int  # results of nodes with effects
    claims: int  # how often such nodes were claimed
    repeated: int  # tokens with effects claimed more often than attempted: an effect may have run twice
    violations: tuple[Violation, ...] = ()


def unreadable(execution: str, reason: str) -> VerificationReport:
    """Return the report of an execution whose rows cannot be read."""
    counts = dict.fromkeys(
        (each.name for each in msgspec.structs.fields(VerificationReport) if each.type is int), 0
    )
    damage = Violation("readable", "its rows", reason)
    return VerificationReport(
        execution_id=execution, workflow_id="", status="unknown", violations=(damage,), **counts
    )


def verify_execution(
    plan: Plan, accepted: ExecutionRecord, stored: Sequence[StoredFact], claims: Claims, summary: Summary
) -> VerificationReport:
    """Replay one execution and return what was found."""
    facts = [each.fact for each in stored if not each.late]
    replayed = [each for each in facts if not isinstance(each, ExecutionEnded | ExecutionStarted)]
    state, applied = fold(plan, [ExecutionStarted(accepted.at), *replayed], accepted.at)
    skipped = set(applied.skipped)
    verifier = JournalVerifier(plan, facts, state, skipped, claims)
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
        repeated=sum(
            claims.get((each.node, each.path), 0) > verifier.explained_claims(each) for each in effects
        ),
        violations=(
            *verifier.check_once(),
            *verifier.check_placed(),
            *verifier.check_joined(),
            *verifier.check_claimed(effects),
            *verifier.check_signals(),
            *_check_ended(plan, stored, state.finish, summary),
        ),
    )


def _is_join(plan: Plan, result: NodeResult) -> bool:
    node = plan.nodes[result.node]
    return node.is_join or node.joins_items


def _made_effect(plan: Plan, result: NodeResult) -> bool:
    """Return whether the node itself ran and had effects. A failure that the engine detected may have no claim."""
    node = plan.nodes[result.node]
    if node.pure or result.status == "cancelled" or result.kept:
        return False
    # Of a type that this process lacks only the worker knew whether it has effects; it named itself if so.
    if node.type.stand_in and not result.worker:
        return False
    return result.failure is None or not result.failure.engine


class JournalVerifier:
    """Checks the facts of one execution against the replayed state, one method per rule."""

    def __init__(
        self, plan: Plan, facts: list[Fact], state: State, skipped: set[Key], claims: Claims
    ) -> None:
        self._plan = plan
        self._facts = facts
        self._state = state
        self._skipped = skipped
        self._claims = claims
        self._suspended = Counter((each.node, each.path) for each in facts if isinstance(each, NodeSuspended))

    def explained_claims(self, result: NodeResult) -> int:
        """Return how many claims a result explains: its attempts, and one more for each suspension."""
        return result.attempt + self._suspended[(result.node, result.path)]

    def _violation(self, rule: str, fact: TokenFact, message: str) -> Violation:
        return Violation(rule, token_name(fact.node, fact.path, self._plan.ids), message)

    def check_once(self) -> Iterator[Violation]:
        """Find facts that are recorded twice."""
        seen: set[object] = set()
        for fact in self._facts:
            key = fact_key(fact)
            if key in seen:
                subject = "execution"
                if not isinstance(fact, ABOUT_EXECUTION):
                    subject = token_name(fact.node, fact.path, self._plan.ids)
                yield Violation("once", subject, f"a second {key[0]} row")
            seen.add(key)

    def check_placed(self) -> Iterator[Violation]:
        """Find facts of tokens that the rules never emit."""
        for fact in self._facts:
            if isinstance(fact, ABOUT_EXECUTION | EffectStarted):
                continue
            reason = self._misplaced(fact)
            if reason:
                yield self._violation("placed", fact, reason)

    def _misplaced(self, fact: TokenFact) -> str:
        """Return why the rules cannot have emitted the token of a fact; empty if they can."""
        node = self._plan.nodes[fact.node] if 0 <= fact.node < len(self._plan.nodes) else None
        if node is None:
            return "no such node"
        if node.index in self._plan.triggers:
            return "a trigger has no token"
        if len(fact.path) != 2 * node.depth or (fact.path and fact.path[-2] != node.split):
            return "the node does not belong to this scope"
        scope = self._state.scopes.get(fact.path)
        if scope is None and not started(self._state, fact.path):
            return "its item was never started"
        skipped = (fact.node, fact.path) in self._skipped
        if skipped and not (isinstance(fact, NodeResult) and fact.status == "skipped"):
            return "the rules skip this node here"
        if scope is not None and fact.node not in scope.done:
            if isinstance(fact, NodeResult):
                return "no earlier fact leads to it"
            if fact.node not in scope.live:
                return "it has no live token"
        return ""

    def check_joined(self) -> Iterator[Violation]:
        """Find joins that were opened by foreign edges, twice by one edge, or by others than the recorded winner."""
        winners = {(each.node, each.path): each for each in self._facts if isinstance(each, RaceWinner)}
        for fact in self._facts:
            if not isinstance(fact, NodeResult) or not fact.arrived:
                continue
            edges = [each.edge for each in fact.arrived]
            if len(set(edges)) != len(edges) or not set(edges) <= set(self._plan.nodes[fact.node].in_edges):
                yield self._violation(
                    "joined", fact, "opened by edges that do not lead to it, or twice by one edge"
                )
            winner = winners.get((fact.node, fact.path))
            if winner is not None and winner.arrived != fact.arrived and fact.status != "failed":
                yield self._violation("joined", fact, "ran with other arrivals than the recorded winner")

    def check_signals(self) -> Iterator[Violation]:
        """Find signals that were consumed more than once or without having been received."""
        received = {each.id for each in self._facts if isinstance(each, SignalReceived)}
        consumed: set[str] = set()
        for fact in self._facts:
            if not isinstance(fact, NodeResult | AttemptFailed) or fact.signal is None:
                continue
            if isinstance(fact, NodeResult) and fact.kept:
                continue
            if fact.signal in consumed:
                message = f"consumed signal {fact.signal}, which was consumed before"
                yield self._violation("signal", fact, message)
            elif fact.signal not in received:
                message = f"consumed signal {fact.signal}, which was never received"
                yield self._violation("signal", fact, message)
            consumed.add(fact.signal)

    def check_claimed(self, effects: Sequence[NodeResult]) -> Iterator[Violation]:
        """Find results of nodes with effects that no worker claimed."""
        for result in effects:
            if not self._claims.get((result.node, result.path)):
                yield self._violation("claimed", result, "has a result but was never claimed")


def _check_ended(
    plan: Plan, stored: Sequence[StoredFact], replayed: FinishExecution | None, summary: Summary
) -> Iterator[Violation]:
    """Find terminal rows that are repeated, out of order, or disagree with the summary or the replay."""
    ends = [each for each in stored if isinstance(each.fact, ExecutionEnded) and not each.late]
    if len(ends) > 1:
        yield Violation("ended", "execution", f"{len(ends)} terminal rows")
    terminal = ends[0] if ends else None
    last = terminal.number if terminal else None
    after = sum(not each.late and last is not None and each.number > last for each in stored)
    before = sum(each.late and (last is None or each.number < last) for each in stored)
    if after:
        yield Violation("ended", "execution", f"{after} facts after the terminal row are not marked late")
    if before:
        yield Violation(
            "ended", "execution", f"{before} facts are marked late without an earlier terminal row"
        )
    end = terminal.fact if terminal else None
    summarised = summary.status if summary.ended_at is not None else None
    if summarised != (end.status if isinstance(end, ExecutionEnded) else None):
        yield Violation(
            "ended", "execution", f"its row has the status {summarised or 'running'}, its facts have another"
        )
    if isinstance(end, ExecutionEnded):
        message = _end_mismatch(plan, end, replayed)
        if message:
            yield Violation("ended", "execution", message)


def _end_mismatch(plan: Plan, end: ExecutionEnded, replayed: FinishExecution | None) -> str:
    """Return how the recorded end differs from the replayed one; empty if it does not."""
    if end.status == "cancelled":
        return ""
    code = end.error.code if end.error else None
    overdue = code == "TIMEOUT" and plan.timeout is not None
    if (end.status == "failed" and overdue) or dead_letter_code(end) is not None:
        return ""
    if replayed is None:
        return f"ended as {end.status}, but its facts leave tokens unfinished"
    if replayed.status != end.status and not {replayed.status, end.status} <= {"failed", "halted"}:
        return f"ended as {end.status}, but its facts lead to {replayed.status}"
    return ""
