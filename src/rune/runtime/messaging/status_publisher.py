"""Outputs as messages show them: as they are stored, or, where they are large, by name.

The herald: says of every node that it runs, waits, and how it ended, before anything follows from that.

It stands around the state, where all of this passes. What it says is for whoever looks on; if it fails, it is silent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from rune.codec.facts import Inline, Large, Same, encode_value
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
from rune.core.execution.explain import Waiting
from rune.core.execution.fact import AttemptFailed, NodeResult, NodeSuspended
from rune.core.execution.outcome import Error
from rune.core.execution.scope import failure_value
from rune.core.execution.step import retry_due
from rune.core.execution.token import Path, Ref, Token, TokenPurpose, parse_path, token_name
from rune.ports.outbox import EventPublisher as Voice
from rune.ports.state import Applied, Claim, State
from rune.runtime.values import ExecutionData, ExecutionDataCache

MAX_PUBLISHED_BYTES = 32 * 1024
"""Bytes of one output in a message; what is larger is named."""


def output_of(book: ExecutionData, result: NodeResult) -> msgspec.Raw:
    """What a node put out, as far as that is in memory."""
    if result.status == "failed":
        return msgspec.Raw(encode_value(failure_value(result)))
    kept = result.value
    while type(kept) is Same:
        ref = kept.ref
        if ref.kind == "start":
            return shown(f"{book.accepted.id}/start", book.accepted.input)
        found = book.cached_result(ref.node, ref.path) if ref.kind == "result" else None
        if found is None:
            return _elsewhere(book, ref)
        if found.status == "failed":
            return msgspec.Raw(encode_value(failure_value(found)))
        result, kept = found, found.value
    name = f"{book.accepted.id}/{token_name(result.node, result.path, book.plan.ids)}"
    if type(kept) is Inline:
        return shown(name, kept.data)
    return reference(kept.key, kept.size) if type(kept) is Large else NOTHING


def shown(name: str, data: bytes, most: int = MAX_PUBLISHED_BYTES) -> msgspec.Raw:
    """A value, or its name where it is large."""
    return msgspec.Raw(data) if len(data) <= most else reference(name, len(data))


def reference(name: str, size: int) -> msgspec.Raw:
    """Where a value that is too large for a message lies."""
    return msgspec.Raw(encode_value({"$ref": name, "bytes": size}))


def _elsewhere(book: ExecutionData, ref: Ref) -> msgspec.Raw:
    """What a node only passed on, and that is not in memory."""
    named: dict[str, Any] = {"$ref": f"{book.accepted.id}/{token_name(ref.node, ref.path, book.plan.ids)}"}
    return msgspec.Raw(encode_value(named))


log = logging.getLogger("rune.herald")

POLL_S = 1.0  # s between two looks at who waits in one execution
MAX_POLLED = 1_000
ENDED: dict[str, Status] = {
    "ok": "success",
    "failed": "failed",
    "cancelled": "cancelled",
    "skipped": "skipped",
}


class StatusPublisher:
    """Around a state. `follows` says where it finds the books of executions; before that it is silent."""

    def __init__(self, state: State, voice: Voice) -> None:
        self._state = state
        self._voice = voice
        self._books: ExecutionDataCache | None = None
        self.certain_end = state.predict_end  # asked for every token: nothing stands in between
        self.renew = state.renew
        self._looked: OrderedDict[str, float] = OrderedDict()
        self._looks: set[asyncio.Task[None]] = set()

    def follows(self, books: ExecutionDataCache) -> None:
        self._books = books

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._state, verb)

    async def claim(self, execution: str, token: Token, owner: str, *, leased: bool) -> Claim:
        claim = await self._state.claim(execution, token, owner, leased=leased)
        if claim.verdict == "run" and claim.token.fate is TokenPurpose.RUN:
            book = await self._execution_data(execution)
            if book is not None:
                self._publish(
                    book, claim.token.node, claim.token.path, "running", claim.now, claim.token.attempt
                )
        return claim

    async def apply(self, execution: str, decisions: Sequence[Decision]) -> Applied:
        applied = await self._state.apply(execution, decisions)
        book = await self._execution_data(execution)
        if book is not None:
            try:
                self._publish_node(book, decisions, applied)
            except Exception:
                log.exception("nothing could be said about %s", execution)
        return applied

    async def _execution_data(self, execution: str) -> ExecutionData | None:
        if self._books is None:
            return None
        try:
            return await self._books.get(execution)
        except Exception as error:
            log.info("nothing is said about %s: %s", execution, error)
            return None

    def _publish_node(self, book: ExecutionData, decisions: Sequence[Decision], applied: Applied) -> None:
        joins: set[int] = set()
        for decision in decisions:
            self._ended(book, decision)
            for effect in decision.effects:
                if type(effect) is SkipNode:
                    self._publish(book, effect.node, decision.path, "skipped", decision.at)
                elif type(effect) is ArriveAtJoin or type(effect) is CollectItem:
                    joins.add(book.plan.dst[effect.edge])
        joins.difference_update(each.node for each in decisions)
        joins.difference_update(each.node for each in applied.emitted)
        if joins and applied.finish is None:
            self._poll_waiting(book)

    def _ended(self, book: ExecutionData, decision: Decision) -> None:
        fact = decision.fact
        node, path, at = decision.node, decision.path, decision.at
        if type(fact) is NodeResult:
            lasted = max(0, fact.at - fact.began) if fact.began else 0
            output = output_of(book, fact) if fact.status == "ok" else NOTHING
            error = _error(fact.failure) if fact.status == "failed" else None
            self._publish(
                book,
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
            waits = {"resume_at": fact.due, "timer_id": f"wait:{token_name(node, path, book.plan.ids)}"}
            if fact.signal is not None:
                waits["signal"] = fact.signal
            self._publish(book, node, path, "waiting", at, fact.attempt, metadata=waits)
        elif type(fact) is AttemptFailed:
            again = {"retry_at": _retry_at(book, fact), "attempt": fact.attempt + 1}
            error = _error(fact.failure)
            self._publish(book, node, path, "waiting", at, fact.attempt, error=error, metadata=again)
        elif fact is None and (decision.effects or not book.plan.nodes[node].fans_out):
            # One of a fan-out without effects has only started more of its items.
            self._publish(book, node, path, "skipped", at)

    def _publish(
        self,
        book: ExecutionData,
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
        ids = book.plan.ids
        message = NodeStatusMessage(
            workflow_id=book.accepted.workflow,
            execution_id=book.accepted.id,
            node_id=ids[node],
            status=status,
            output=output,
            error=error,
            executed_at=moment(at),
            duration_ms=lasted,
            lineage=frames(book.accepted.id, path, ids, book.count) if path else (),
            attempt=attempt,
            details=details,
            metadata=metadata,
        )
        self._voice.publish_status(encode_message(message))

    def _poll_waiting(self, book: ExecutionData) -> None:
        """Somebody arrived at a join that stays closed. Who is there is asked of the state, now and then."""
        execution, now = book.accepted.id, time.monotonic()
        if now < self._looked.get(execution, 0.0) or len(self._looks) >= 1:
            return
        self._looked[execution] = now + POLL_S
        self._looked.move_to_end(execution)
        if len(self._looked) > MAX_POLLED:
            self._looked.popitem(last=False)
        look = asyncio.create_task(self._waiting(book))
        self._looks.add(look)
        look.add_done_callback(self._looks.discard)

    async def _waiting(self, book: ExecutionData) -> None:
        try:
            for each in await self._state.explain(book.accepted.id):
                details = _counts(each)
                path = parse_path(each.lineage, book.plan.index) if each.lineage != "/" else ()
                if details is not None and path is not None:
                    now = time.time_ns() // 1_000_000
                    self._publish(book, book.plan.index[each.node], path, "waiting", now, details=details)
        except Exception as error:
            log.info("who waits in %s is not known: %s", book.accepted.id, error)

    async def close(self) -> None:
        for each in self._looks:
            each.cancel()
        await asyncio.gather(*self._looks, return_exceptions=True)


def publish_statuses(herald: StatusPublisher) -> State:
    """The state that a herald stands around."""
    return cast(State, herald)


def _counts(waiting: Waiting) -> dict[str, Any] | None:
    """How far a join is; None for what is none."""
    if waiting.total is not None:
        return {"processed": waiting.done or 0, "total": waiting.total}
    arrived = len(waiting.arrived) + len(waiting.skipped)
    if not arrived:
        return None
    return {"arrived": arrived, "expected": arrived + len(waiting.missing)}


def _error(error: Error | None) -> ErrorObject:
    if error is None:
        return ErrorObject("the node failed", "FAILED")
    return ErrorObject(error.message, error.code, error.details)


def _retry_at(book: ExecutionData, fact: AttemptFailed) -> int:
    asked = fact.failure.details.get("retry_at")
    name = token_name(fact.node, fact.path, book.plan.ids)
    policy = book.plan.nodes[fact.node].retry
    return retry_due(policy, fact.attempt, fact.at, name, asked if type(asked) is int else 0)
