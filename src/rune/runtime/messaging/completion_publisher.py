"""Publishes what other programs learn of whole executions: completions, and starts that another engine runs.

Each ended execution has one completion message, with the same bytes however often it is sent. It is built from the
facts before the terminal row, so every process builds the same one. The process that ended the execution publishes it
at once; if that fails or the process crashes, the outbox relay stores the bytes and then publishes them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from rune.codec.messages import (
    MAX_FULL_BYTES,
    CompletionMessage,
    ErrorObject,
    MessageTooLargeError,
    NodeExecutionMessage,
    encode_message,
    frames,
    moment,
)
from rune.core.definition.model import canonical
from rune.core.execution.fact import ExecutionEnded, NodeResult
from rune.core.execution.outcome import Error
from rune.core.execution.stored_value import Inline
from rune.core.execution.token import ROOT, Path
from rune.core.plan.model import Plan
from rune.errors import RuneError
from rune.ports.journal import (
    EventPublisher,
    ExecutionRecord,
    HandedOver,
    Journal,
    Outbox,
    OutboxRow,
    StoreUnavailableError,
)
from rune.runtime.execution_data import ExecutionData, ExecutionDataCache, ExecutionNotFoundError
from rune.runtime.messaging.published_values import (
    MAX_PUBLISHED_BYTES,
    is_reference,
    output_of,
    reference,
    start_of,
)

if TYPE_CHECKING:
    from rune.runtime.lifecycle.outbox_marker import OutboxMarker

log = logging.getLogger("rune.completion_publisher")

MAX_CONTEXT_BYTES = 64 * 1024
"""Of all outputs in a message together. Beyond it, the largest outputs are replaced by references."""

MAX_ENVELOPE_BYTES = 16 * 1024
"""What is left for the other fields of a self-contained message."""

MAX_IN_FLIGHT = 1_000
"""Completions published at once. Further ones are left to the relay."""


class CompletionPublisher:
    """Builds and publishes completion messages."""

    def __init__(
        self,
        publisher: EventPublisher,
        journal: Journal,
        data_cache: ExecutionDataCache,
        outbox_marker: OutboxMarker,
        max_message: int | None = None,
    ) -> None:
        """With `max_message`, outputs are whole as long as the message has at most so many bytes."""
        self._max_context = MAX_CONTEXT_BYTES
        self._max_output = MAX_PUBLISHED_BYTES
        if max_message is not None:
            self._max_context = self._max_output = max(0, max_message - MAX_ENVELOPE_BYTES)
        self._publisher = publisher
        self._journal = journal
        self._data_cache = data_cache
        self._outbox_marker = outbox_marker
        self._tasks: set[asyncio.Task[None]] = set()

    def publish_end(self, data: ExecutionData, end: ExecutionEnded) -> None:
        """Publish the completion in the background; the outbox row is marked as done only after that."""
        if len(self._tasks) >= MAX_IN_FLIGHT:
            data.forget()
            return
        task = asyncio.create_task(self._publish(data, end))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _publish(self, data: ExecutionData, end: ExecutionEnded) -> None:
        try:
            await self._publisher.publish_completion(await self._build(data, end))
        except StoreUnavailableError as error:
            log.info("the completion of %s is left to the relay: %s", data.accepted.id, error.message)
        except Exception:
            log.exception("the completion of %s is left to the relay", data.accepted.id)
        else:
            self._outbox_marker.mark_done(data.accepted.id, "end")
        finally:
            data.forget()

    async def publish_from_outbox(self, outbox: Outbox, row: OutboxRow, end: ExecutionEnded) -> None:
        """Publish the completion of an outbox row that is not marked as done."""
        body = row.body
        if body is None:
            try:
                data = await self._data_cache.get(row.execution)
            except ExecutionNotFoundError:
                return  # retention has removed the execution
            body = await outbox.keep(row.number, await self._build(data, end))
            self._data_cache.forget(row.execution)
        await self._publisher.publish_completion(body)

    async def close(self) -> None:
        """Wait for all messages that are being published."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _build(self, data: ExecutionData, end: ExecutionEnded) -> bytes:
        context = await self._context(data, end)
        message = CompletionMessage(
            workflow_id=data.accepted.workflow,
            execution_id=data.accepted.id,
            status=end.status,
            final_context=msgspec.Raw(msgspec.json.encode(_shrink(data, context, self._max_context))),
            completed_at=moment(end.at),
            total_duration_ms=max(0, end.at - data.accepted.at),
            failed_items=end.failed_items,
            version=msgspec.UNSET if data.accepted.version is None else data.accepted.version,
            alias=msgspec.UNSET if data.accepted.alias is None else data.accepted.alias,
            error=msgspec.UNSET if end.error is None else await self._error(data, end.error),
        )
        return encode_message(message)

    async def _error(self, data: ExecutionData, error: Error) -> ErrorObject:
        """Return the error of an execution, with the frames of the item it comes from."""
        origin = error.origin
        if origin is None:
            return ErrorObject(error.message, error.code, error.details)
        path: Path = tuple(each for split, item in origin.lineage for each in (data.plan.index[split], item))
        totals = await self._totals(data, path)
        lineage = frames(data.accepted.id, path, data.plan.ids, lambda split, outer: totals[split, outer])
        return ErrorObject(
            error.message,
            error.code,
            error.details,
            origin.node_id,
            origin.node_type,
            msgspec.to_builtins(lineage),
            origin.attempt,
        )

    async def _totals(self, data: ExecutionData, path: Path) -> dict[tuple[int, Path], int]:
        """Return the number of items of each split on a path."""
        keys = [(path[at], path[:at]) for at in range(0, len(path), 2)]
        found = await self._journal.results(data.accepted.id, keys) if keys else []
        return {key: (each.items or 0) if each else 0 for key, each in zip(keys, found, strict=True)}

    async def _context(self, data: ExecutionData, end: ExecutionEnded) -> dict[str, msgspec.Raw]:
        """Return the outputs of the root scope. A completed execution has no late facts, so cached results are enough;
        after any other end there may be late results, which must not be in the message."""
        plan = data.plan
        roots = [node.index for node in plan.nodes if node.depth == 0 and node.index not in plan.triggers]
        if end.status == "completed":
            found = {node: data.cached_result(node, ROOT) for node in roots}
            missing = [node for node, result in found.items() if result is None]
            if missing:
                stored = await self._journal.results(data.accepted.id, [(node, ROOT) for node in missing])
                found |= zip(missing, stored, strict=True)
        else:
            facts = [each.fact for each in await self._journal.facts(data.accepted.id) if not each.late]
            found = {each.node: each for each in facts if isinstance(each, NodeResult) and not each.path}
        start = await start_of(data, self._max_output)
        context = {"$trigger": start} | {f"${plan.ids[node]}": start for node in sorted(plan.triggers)}
        for result in _with_value(found.get(node) for node in roots):
            context[f"${plan.ids[result.node]}"] = await output_of(data, result, self._max_output)
        return context


def _with_value(results: Iterator[NodeResult | None]) -> Iterator[NodeResult]:
    for each in results:
        if each is not None and each.status in ("ok", "failed") and each.items is None:
            yield each


def _shrink(data: ExecutionData, context: dict[str, msgspec.Raw], most: int) -> dict[str, msgspec.Raw]:
    """Replace the largest outputs by references until the rest fits into a message. What is a reference already, or is
    shorter than one, stays."""
    total = sum(len(bytes(each)) for each in context.values())
    for name in sorted(context, key=lambda each: (-len(bytes(context[each])), each)):
        if total <= most:
            break
        value = bytes(context[name])
        of_start = name[1:] not in data.plan.index or data.plan.index[name[1:]] in data.plan.triggers
        where = f"{data.accepted.id}/{'start' if of_start else f'{name[1:]}@/'}"
        found = reference(where, len(value))
        if len(bytes(found)) < len(value) and not is_reference(value, where):
            context[name] = found
            total -= len(value) - len(bytes(found))
    return context


class ExternalExecutorError(RuneError):
    """The execution runs in another engine, so this process cannot follow it to its end."""

    code = "RUNS_ELSEWHERE"


class ExternalExecutor:
    """Runs the executions of definitions whose settings have `executor: legacy`."""

    def __init__(self, publisher: EventPublisher) -> None:
        self._publisher = publisher

    def runs(self, plan: Plan) -> bool:
        """Return whether executions of this plan run in the other engine."""
        return plan.definition.settings.executor == "legacy"

    async def start(self, record: ExecutionRecord, plan: Plan) -> HandedOver:
        """Hand an execution over; the broker has stored it when this returns. It is not in the journal."""
        execution = record.id
        if record.key is not None:
            # The other engine knows only the id of an execution, so the id is derived from the idempotency key.
            seed = f"{plan.definition.id}\x1f{record.key}".encode()
            execution = "k" + hashlib.blake2b(seed, digest_size=15).hexdigest()
        assert type(record.input) is Inline
        # The definition is in the message, and with it the priority that it sets.
        priority = None if record.priority == plan.definition.settings.priority else record.priority
        await self._publisher.hand_over(_start_message(plan, record.input.data, execution, priority))
        return HandedOver(
            id=execution,
            workflow=record.workflow,
            hash=record.hash,
            at=record.at,
            input=record.input,
            key=record.key,
            priority=record.priority,
        )


def _start_message(plan: Plan, input: bytes, execution: str, priority: int | None) -> bytes:
    """Encode the start of an execution for an engine without access to our stores."""
    message = NodeExecutionMessage(
        workflow_id=plan.definition.id,
        execution_id=execution,
        current_node=plan.ids[plan.first[0]],
        definition=msgspec.Raw(canonical(plan.definition)),
        context=msgspec.Raw(b'{"$trigger":' + input + b"}"),
        priority=priority,
    )
    body = encode_message(message)
    if len(body) > MAX_FULL_BYTES:
        raise MessageTooLargeError(f"the start of {plan.definition.id}", len(body), MAX_FULL_BYTES)
    return body
