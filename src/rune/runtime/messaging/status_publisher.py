"""Publishes the statuses of node runs to RabbitMQ, from the workers.

The publisher wraps the state, because every claim and every decision passes there. Outputs are published whole, also
those that a node shares with others; large ones are replaced by a reference.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
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
from rune.core.execution.fact import AttemptFailed, ExecutionEnded, NodeResult, NodeSuspended
from rune.core.execution.outcome import Error
from rune.core.execution.reasons import Waiting
from rune.core.execution.retry import retry_due
from rune.core.execution.token import Path, Token, TokenPurpose, parse_path, token_name
from rune.core.plan.model import Plan
from rune.ports.journal import EventPublisher
from rune.ports.state import Applied, Claim, Fence, State
from rune.runtime.execution_data import ExecutionData, ExecutionDataCache
from rune.runtime.messaging.published_values import MAX_PUBLISHED_BYTES, output_of
from rune.runtime.queries.history import OpenRuns, end_text
from rune.runtime.state_wrapper import StateWrapper

log = logging.getLogger("rune.status")

# How often the joins of one execution are read to publish what they wait for.
POLL_S = 1.0
MAX_POLLED = 1_000
MAX_BEGUN = 10_000
"""Executions with runs in this process whose end is not known."""

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
        state: State,
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
        self._poll_after: OrderedDict[str, float] = OrderedDict()
        self._polls: set[asyncio.Task[None]] = set()
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
        await self._state.end(execution, fact)
        begun = self._begun.pop(execution, {})
        self._continued -= {(execution, *key) for key in begun}
        if fact.status == "completed":
            return
        known = execution in self._ended
        self._ended[execution] = None
        if len(self._ended) > MAX_POLLED:
            self._ended.popitem(last=False)
        data = None if known and not begun else await self._execution_data(execution)
        if data is not None:
            try:
                runs = begun if known else {**await self._open_runs(execution), **begun}
                await self._publish_cancelled(data, fact, runs)
            except Exception:
                log.exception("publishing the cancelled nodes of %s failed", execution)

    async def _open_runs(self, execution: str) -> dict[Key, tuple[int, int]]:
        """Return the runs that waited or were between two attempts, with when they began and their attempt."""
        runs = OpenRuns()
        for each in await self._data_cache.facts(execution):
            runs.add(each)
        return {**runs.late, **runs.open}

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
            self._poll_waiting(data)

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

    def _poll_waiting(self, data: ExecutionData) -> None:
        """Publish what a join waits for that a token arrived at, at most once per poll."""
        execution, now = data.accepted.id, time.monotonic()
        if now < self._poll_after.get(execution, 0.0) or len(self._polls) >= 1:
            return
        self._poll_after[execution] = now + POLL_S
        self._poll_after.move_to_end(execution)
        if len(self._poll_after) > MAX_POLLED:
            self._poll_after.popitem(last=False)
        poll = asyncio.create_task(self._waiting(data))
        self._polls.add(poll)
        poll.add_done_callback(self._polls.discard)

    async def _waiting(self, data: ExecutionData) -> None:
        try:
            until = time.monotonic() + POLL_S
            if not await self._may_report(data.accepted.id, round(POLL_S * 1000)):
                return
            found: list[tuple[int, Path, dict[str, Any]]] = []
            for each in await self._state.explain(data.accepted.id):
                details = _counts(data.plan, each)
                path = parse_path(each.lineage, data.plan.index) if each.lineage != "/" else ()
                if details is not None and path is not None:
                    found.append((data.plan.index[each.node], path, details))
            await self._load_counts(data, [path for _, path, _ in found])
            if time.monotonic() >= until:
                return  # another process may have published what it read later
            now = time.time_ns() // 1_000_000
            for node, path, details in found:
                self._publish(data, node, path, "waiting", now, details=details)
        except Exception as error:
            log.info("the waiting joins of %s are not known: %s", data.accepted.id, error)

    async def close(self) -> None:
        for each in self._polls:
            each.cancel()
        await asyncio.gather(*self._polls, return_exceptions=True)


def _counts(plan: Plan, waiting: Waiting) -> dict[str, Any] | None:
    """The progress of a join; None if it is none."""
    if waiting.total is not None:
        return {"processed": waiting.done or 0, "total": waiting.total}
    arrived = len(waiting.arrived) + len(waiting.skipped)
    if not arrived:
        return None
    opens = plan.nodes[plan.index[waiting.node]].opens
    if opens != "all":  # it opens with so many live arrivals
        return {"arrived": len(waiting.arrived), "expected": 1 if opens == "any" else opens}
    return {"arrived": arrived, "expected": arrived + len(waiting.missing)}


def _error(error: Error | None) -> ErrorObject:
    if error is None:
        return ErrorObject("the node failed", "FAILED")
    return ErrorObject(error.message, error.code, error.details)


def _retry_at(data: ExecutionData, fact: AttemptFailed) -> int:
    retry_at = fact.failure.details.get("retry_at")
    name = token_name(fact.node, fact.path, data.plan.ids)
    policy = data.plan.nodes[fact.node].retry
    return retry_due(policy, fact.attempt, fact.at, name, retry_at if type(retry_at) is int else 0)
