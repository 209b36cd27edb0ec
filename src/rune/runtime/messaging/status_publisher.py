"""Publishes the statuses of node runs to RabbitMQ, from the workers.

The publisher wraps the state, because every claim and every decision passes there. Outputs are published whole, also
those that a node shares with others; large ones are replaced by a reference.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from rune.codec.messages import (
    NOTHING,
    ErrorObject,
    NodeStatusMessage,
    Status,
    encode_message,
    frames,
    moment,
)
from rune.core.execution.decision import ArriveAtJoin, CollectItem, Decision, SkipNode
from rune.core.execution.fact import (
    AttemptFailed,
    ExecutionEnded,
    ExecutionStarted,
    NodeResult,
    NodeSuspended,
)
from rune.core.execution.fold import fold
from rune.core.execution.outcome import Error
from rune.core.execution.retry import retry_due
from rune.core.execution.state import State
from rune.core.execution.token import Path, Token, TokenPurpose, token_name
from rune.core.plan.model import Plan
from rune.off_loop import off_loop
from rune.ports.journal import EventPublisher, StoredFact
from rune.ports.state import Applied, Claim, Fence
from rune.ports.state import State as StatePort
from rune.runtime.execution_data import ExecutionData, ExecutionDataCache
from rune.runtime.messaging.published_values import MAX_PUBLISHED_BYTES, output_of
from rune.runtime.messaging.waiting_joins import PERIOD_S, JoinReporter, waiting_joins
from rune.runtime.queries.history import OpenRuns, end_text
from rune.runtime.state_wrapper import StateWrapper

log = logging.getLogger("rune.status")

MAX_ENDED = 1_000
MAX_BEGUN = 10_000
"""Executions with runs in this process whose end is not known."""

MAX_FOLDED_FACTS = 100_000
"""An execution that only waits has no stored state. The joins of one with more facts are not published then."""

Key = tuple[int, Path]
ENDED: dict[str, Status] = {
    "ok": "success",
    "failed": "failed",
    "cancelled": "cancelled",
    "skipped": "skipped",
}


class StatusPublisher(StateWrapper):
    """Publishes a status when a token is claimed, waits or ends, before any token that follows from it is sent.

    A failure to publish is logged and changes nothing else: the journal has every result.
    """

    def __init__(
        self,
        state: StatePort,
        publisher: EventPublisher,
        data_cache: ExecutionDataCache,
        may_report: Callable[[str, int], Awaitable[bool]],
        worker: str = "",
        max_output: int = MAX_PUBLISHED_BYTES,
    ) -> None:
        """`may_report` tells whether this process may report what an execution waits for; no other may for so many
        milliseconds. `worker` is the name of this process, which statuses of running nodes carry. `max_output`: bytes
        of an output."""
        super().__init__(state)
        self._max_output = max_output
        self._running = {"worker": worker}
        self._publisher = publisher
        self._data_cache = data_cache
        self._may_report = may_report
        self._joins = JoinReporter(self._report_joins)
        self._begun: OrderedDict[str, dict[Key, tuple[int, int]]] = OrderedDict()  # runs of this process
        self._continued: set[tuple[str, int, Path]] = set()  # runs that began before: resumed, or tried again
        self._ended: OrderedDict[str, None] = OrderedDict()  # executions whose open runs were published

    async def claim(self, execution: str, token: Token, owner: str, *, leased: bool) -> Claim:
        claim = await self._state.claim(execution, token, owner, leased=leased)
        await self._note_claim(execution, claim)
        return claim

    async def claim_all(self, execution: str, tokens: Sequence[Token], owner: str) -> list[Claim]:
        claims = await self._state.claim_all(execution, tokens, owner)
        for claim in claims:
            await self._note_claim(execution, claim)
        return claims

    async def _note_claim(self, execution: str, claim: Claim) -> None:
        """Publish that a run begins. One that is resumed has begun before."""
        token = claim.token
        if claim.verdict == "run" and token.resumed:
            self._begin(execution, token, claim.now)
        elif claim.verdict == "run" and token.fate is TokenPurpose.RUN:
            await self._publish_running(execution, claim)

    async def _publish_running(self, execution: str, claim: Claim) -> None:
        self._begin(execution, claim.token, claim.now)
        data = self._data_cache.cached(execution) or await self._execution_data(execution)
        if data is not None:
            token = claim.token
            if token.path:
                await self._load_counts(data, [token.path])
            self._publish(
                data, token.node, token.path, "running", claim.now, token.attempt, metadata=self._running
            )

    def _begin(self, execution: str, token: Token, now: int) -> None:
        begun = self._begun.get(execution)
        if begun is None:
            begun = self._begun[execution] = {}
            if len(self._begun) > MAX_BEGUN:
                self._begun.popitem(last=False)
        begun[(token.node, token.path)] = (now, token.attempt)
        if token.resumed or token.attempt > 1:
            self._continued.add((execution, token.node, token.path))

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        applied = await self._state.apply(execution, decisions)
        await self._publish_applied(execution, decisions, applied)
        return applied

    async def apply_all(self, execution: str, runs: Sequence[Sequence[Decision]]) -> Applied:
        applied = await self._state.apply_all(execution, runs)
        await self._publish_applied(execution, [each for run in runs for each in run], applied)
        return applied

    async def apply_and_claim(
        self, execution: str, decisions: Sequence[Decision], successor: int, owner: str
    ) -> Applied:
        applied = await self._state.apply_and_claim(execution, decisions, successor, owner)
        await self._publish_applied(execution, decisions, applied)
        if applied.kept is not None:
            await self._publish_running(execution, applied.kept.claim)
        return applied

    async def _publish_applied(self, execution: str, decisions: Sequence[Decision], applied: Applied) -> None:
        begun = self._begun.get(execution, {})
        inline = {
            (each.node, each.path) for each in decisions if begun.pop((each.node, each.path), None) is None
        }
        data = self._data_cache.cached(execution) or await self._execution_data(execution)
        if data is not None:
            try:
                decisions = [await self._since_first_begin(execution, each) for each in decisions]
                if paths := [each.path for each in decisions if each.path]:
                    await self._load_counts(data, paths)
                outputs = await self._outputs(data, decisions)
                self._publish_node(data, decisions, applied, outputs, inline)
            except Exception:
                log.exception("publishing the statuses of %s failed", execution)

    async def _since_first_begin(self, execution: str, decision: Decision) -> Decision:
        """Return a decision whose result began when the node first did: before it waited or was tried again."""
        key = (execution, decision.node, decision.path)
        if key not in self._continued:
            return decision
        self._continued.discard(key)
        fact = decision.fact
        if type(fact) is not NodeResult:
            return decision
        rows = await self._data_cache.facts_of_token(*key)
        earlier = [each.began or each.at for each in rows if isinstance(each, AttemptFailed | NodeSuspended)]
        first = min([fact.began or fact.at, *earlier])
        return msgspec.structs.replace(decision, fact=msgspec.structs.replace(fact, began=first))

    async def _load_counts(self, data: ExecutionData, paths: Iterable[Path]) -> None:
        """Load the item counts that lineages contain. Without them a status is published all the same."""
        try:
            await data.load_counts(paths)
        except Exception as error:
            log.info("the items of a split of %s are not counted: %s", data.accepted.id, error)

    async def renew(self, execution: str, node: int, path: Path, fence: Fence) -> bool:
        held = await self._state.renew(execution, node, path, fence)
        if not held and (node, path) in self._begun.get(execution, ()):
            await self._check_cancelled(execution, (node, path))
        return held

    async def _check_cancelled(self, execution: str, key: Key) -> None:
        """Publish that a run is cancelled if it lost its lease because its execution has ended."""
        try:
            end = await self._data_cache.end(execution)
            if end is not None and end.status != "completed":
                data = await self._data_cache.get(execution)
                # The end of the execution may have published it meanwhile.
                run = self._begun.get(execution, {}).pop(key, None)
                if run is not None:
                    await self._publish_cancelled(data, end, {key: run})
        except Exception:
            log.exception("publishing a cancelled node of %s failed", execution)

    async def end(self, execution: str, fact: ExecutionEnded) -> None:
        self._joins.forget(execution)
        known = execution in self._ended
        open_state = None if known or fact.status == "completed" else await self._open_state(execution)
        await self._state.end(execution, fact)
        begun = self._begun.pop(execution, {})
        self._continued -= {(execution, *key) for key in begun}
        if fact.status == "completed":
            return
        self._ended[execution] = None
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)
        data = None if known and not begun else await self._execution_data(execution)
        if data is not None:
            try:
                runs = begun if known else {**await self._open_runs(data, open_state), **begun}
                await self._publish_cancelled(data, fact, runs)
            except Exception:
                log.exception("publishing the cancelled nodes of %s failed", execution)

    async def _open_state(self, execution: str) -> State | None:
        """Return the state of an execution with joins that is about to be dropped; None if it is not stored."""
        data = self._data_cache.cached(execution)
        if data is not None and not _has_joins(data.plan):
            return None
        try:
            return await self._state.peek(execution)
        except Exception as error:
            log.info("the waiting joins of %s are not known: %s", execution, error)
            return None

    async def _open_runs(self, data: ExecutionData, open_state: State | None) -> dict[Key, tuple[int, int]]:
        """Return the runs that waited or were between two attempts, and the joins that waited, with when they began and
        their attempt."""
        facts = await self._data_cache.facts(data.accepted.id)
        runs = OpenRuns()
        for each in facts:
            runs.add(each)
        if open_state is None and _has_joins(data.plan) and len(facts) <= MAX_FOLDED_FACTS:
            open_state = await _folded(data, facts)
        joins: dict[Key, tuple[int, int]] = {}
        if open_state is not None:
            # The decision that ends an execution is not applied: the state has a join that failed as a waiting one.
            results = {
                (fact.node, fact.path) for fact in (each.fact for each in facts) if type(fact) is NodeResult
            }
            for join in waiting_joins(data.plan, open_state):
                if (join.node, join.path) not in results:
                    joins[(join.node, join.path)] = (join.since, 1)
        return {**joins, **runs.late, **runs.open}

    async def _publish_cancelled(
        self, data: ExecutionData, end: ExecutionEnded, runs: Mapping[Key, tuple[int, int]]
    ) -> None:
        """Publish that runs are cancelled by the end of their execution. Each process that learns of the end publishes
        those it knows of, so a status may come twice."""
        await self._load_counts(data, [path for _, path in runs])
        reason = {"reason": end_text(end)}
        for (node, path), (began, attempt) in runs.items():
            lasted = max(0, end.at - began)
            self._publish(data, node, path, "cancelled", end.at, attempt, lasted=lasted, metadata=reason)

    async def _execution_data(self, execution: str) -> ExecutionData | None:
        try:
            return await self._data_cache.get(execution)
        except Exception as error:
            log.info("no status is published for %s: %s", execution, error)
            return None

    async def _outputs(self, data: ExecutionData, decisions: Sequence[Decision]) -> list[msgspec.Raw]:
        """Return what the statuses of these decisions carry as output."""
        found = []
        for each in decisions:
            fact, output = each.fact, NOTHING
            if type(fact) is NodeResult and fact.status == "ok":
                output = await output_of(data, fact, self._max_output)
            found.append(output)
        return found

    def _publish_node(
        self,
        data: ExecutionData,
        decisions: Sequence[Decision],
        applied: Applied,
        outputs: Sequence[msgspec.Raw],
        inline: Collection[Key],
    ) -> None:
        """`inline` runs were not claimed. One that waits is published as running first, like any other wait."""
        joins: set[int] = set()
        for decision, output in zip(decisions, outputs, strict=True):
            fact = decision.fact
            if type(fact) is NodeSuspended and (fact.node, fact.path) in inline:
                began = fact.began or fact.at
                self._publish(
                    data, fact.node, fact.path, "running", began, fact.attempt, metadata=self._running
                )
            self._publish_end(data, decision, output)
            for effect in decision.effects:
                if type(effect) is SkipNode:
                    self._publish(data, effect.node, decision.path, "skipped", decision.at)
                elif type(effect) is ArriveAtJoin or type(effect) is CollectItem:
                    joins.add(data.plan.dst[effect.edge])
        joins.difference_update(each.node for each in decisions)
        joins.difference_update(each.node for each in applied.emitted)
        if joins and applied.finish is None:
            self._joins.arrived(data)

    def _publish_end(self, data: ExecutionData, decision: Decision, output: msgspec.Raw) -> None:
        fact = decision.fact
        node, path, at = decision.node, decision.path, decision.at
        if type(fact) is NodeResult:
            lasted = max(0, fact.at - fact.began) if fact.began else 0
            error = _error(fact.failure) if fact.status == "failed" else None
            self._publish(
                data,
                node,
                path,
                ENDED[fact.status],
                at,
                fact.attempt,
                output=output,
                error=error,
                lasted=lasted,
            )
        elif type(fact) is NodeSuspended:
            waits = {"resume_at": fact.due, "timer_id": f"wait:{token_name(node, path, data.plan.ids)}"}
            if fact.signal is not None:
                waits["signal"] = fact.signal
            self._publish(data, node, path, "waiting", at, fact.attempt, metadata=waits)
        elif type(fact) is AttemptFailed:
            again = {"retry_at": _retry_at(data, fact), "attempt": fact.attempt + 1}
            error = _error(fact.failure)
            self._publish(data, node, path, "waiting", at, fact.attempt, error=error, metadata=again)
        elif fact is None and (decision.effects or not data.plan.nodes[node].fans_out):
            # A decision of a fan-out without effects has only started more items.
            self._publish(data, node, path, "skipped", at)

    def _publish(
        self,
        data: ExecutionData,
        node: int,
        path: Path,
        status: Status,
        at: int,
        attempt: int = 1,
        *,
        output: msgspec.Raw = NOTHING,
        error: ErrorObject | None = None,
        lasted: int = 0,
        details: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET,
        metadata: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET,
    ) -> None:
        ids = data.plan.ids
        message = NodeStatusMessage(
            workflow_id=data.accepted.workflow,
            execution_id=data.accepted.id,
            node_id=ids[node],
            status=status,
            output=output,
            error=error,
            executed_at=moment(at),
            duration_ms=lasted,
            lineage=frames(data.accepted.id, path, ids, data.count) if path else (),
            attempt=attempt,
            details=details,
            metadata=metadata,
        )
        self._publisher.publish_status(encode_message(message))

    async def _report_joins(self, data: ExecutionData) -> bool:
        """Publish what the joins of an execution wait for; False if another process may have done it in this period."""
        until = time.monotonic() + PERIOD_S
        if not await self._may_report(data.accepted.id, round(PERIOD_S * 1000)):
            return False
        state = await self._current_state(data)
        joins = [] if state is None else list(waiting_joins(data.plan, state))
        await self._load_counts(data, [join.path for join in joins])
        if time.monotonic() >= until:
            return False  # another process may have published what it read later
        now = time.time_ns() // 1_000_000
        for join in joins:
            self._publish(data, join.node, join.path, "waiting", now, details=join.details)
        return True

    async def _current_state(self, data: ExecutionData) -> State | None:
        """Return the state of an execution, from its facts if it is not stored; None if it has ended."""
        state = await self._state.peek(data.accepted.id)
        if state is not None:
            return state
        facts = await self._data_cache.facts(data.accepted.id, MAX_FOLDED_FACTS + 1)
        has_ended = any(type(each.fact) is ExecutionEnded for each in facts)
        return None if has_ended or len(facts) > MAX_FOLDED_FACTS else await _folded(data, facts)

    async def close(self) -> None:
        await self._joins.close()


async def _folded(data: ExecutionData, facts: Sequence[StoredFact]) -> State:
    """Return the state before the end that facts lead to."""
    before = [each.fact for each in facts if not each.late and type(each.fact) is not ExecutionEnded]
    started = ExecutionStarted(data.accepted.at)
    now = max(each.at for each in (started, *before))
    state, _ = await off_loop(partial(fold, data.plan, [started, *before], now))
    return state


def _has_joins(plan: Plan) -> bool:
    return any(node.is_join or node.joins_items for node in plan.nodes)


def _error(error: Error | None) -> ErrorObject:
    if error is None:
        return ErrorObject("the node failed", "FAILED")
    return ErrorObject(error.message, error.code, error.details)


def _retry_at(data: ExecutionData, fact: AttemptFailed) -> int:
    retry_at = fact.failure.details.get("retry_at")
    name = token_name(fact.node, fact.path, data.plan.ids)
    policy = data.plan.nodes[fact.node].retry
    return retry_due(policy, fact.attempt, fact.at, name, retry_at if type(retry_at) is int else 0)
