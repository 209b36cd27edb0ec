"""Completing: one message for each execution that has ended, the same bytes however often it is sent.

It is made of what stood in the journal before the terminal row, so whoever makes it makes the same. Whoever ended the
execution sends it at once; if that fails, or they die, a relay does, and then the bytes are kept first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import msgspec

from rune.codec.facts import Same
from rune.codec.messages import CompletionMessage, ErrorObject, encode_message, moment
from rune.core.execution.fact import ExecutionEnded, NodeResult
from rune.core.execution.outcome import Error
from rune.core.execution.token import ROOT
from rune.ports.journal import Journal, StoreUnavailableError
from rune.ports.outbox import EventPublisher, Outbox, OutboxRow
from rune.runtime.lifecycle.outbox import OutboxMarker
from rune.runtime.messaging.status_publisher import output_of, reference, shown
from rune.runtime.values import ExecutionData, ExecutionDataCache, ExecutionNotFoundError

log = logging.getLogger("rune.completing")

MAX_BYTES = 64 * 1024
"""Of all outputs in a message together; then the largest are named instead."""
MAX_IN_FLIGHT = 1_000
"""Completions that may be on their way at once; the others are left to a relay."""


class CompletionPublisher:
    """Makes and sends completions."""

    def __init__(
        self, herald: EventPublisher, journal: Journal, books: ExecutionDataCache, notices: OutboxMarker
    ) -> None:
        self._herald = herald
        self._journal = journal
        self._books = books
        self._notices = notices
        self._sending: set[asyncio.Task[None]] = set()

    def ended(self, book: ExecutionData, end: ExecutionEnded) -> None:
        """Send it, without anybody waiting; only then is it settled that the execution has ended."""
        if len(self._sending) >= MAX_IN_FLIGHT:
            return
        sending = asyncio.create_task(self._send(book, end))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)

    async def _send(self, book: ExecutionData, end: ExecutionEnded) -> None:
        try:
            await self._herald.publish_completion(await self._made(book, end))
        except StoreUnavailableError as away:
            log.info("the completion of %s is left to a relay: %s", book.accepted.id, away.message)
        except Exception:
            log.exception("the completion of %s is left to a relay", book.accepted.id)
        else:
            self._notices.mark_done(book.accepted.id, "end")
        finally:
            book.forget()

    async def relayed(self, outbox: Outbox, notice: OutboxRow, end: ExecutionEnded) -> None:
        """Send it because nobody said that it was sent."""
        body = notice.body
        if body is None:
            try:
                book = await self._books.get(notice.execution)
            except ExecutionNotFoundError:
                return  # it was removed meanwhile
            body = await outbox.keep(notice.number, await self._made(book, end))
            self._books.close(notice.execution)
            book.forget()
        await self._herald.publish_completion(body)

    async def close(self) -> None:
        """Wait for what is on its way."""
        await asyncio.gather(*self._sending, return_exceptions=True)

    async def _made(self, book: ExecutionData, end: ExecutionEnded) -> bytes:
        context = await self._context(book, end)
        message = CompletionMessage(
            workflow_id=book.accepted.workflow,
            execution_id=book.accepted.id,
            status=end.status,
            final_context=msgspec.Raw(msgspec.json.encode(_fitting(book, context))),
            completed_at=moment(end.at),
            total_duration_ms=max(0, end.at - book.accepted.at),
            error=msgspec.UNSET if end.error is None else _error(end.error),
        )
        return encode_message(message)

    async def _context(self, book: ExecutionData, end: ExecutionEnded) -> dict[str, msgspec.Raw]:
        """The outputs of the root scope. Nobody can be late to an end that all had reached."""
        plan = book.plan
        roots = [node.index for node in plan.nodes if node.depth == 0 and node.index not in plan.triggers]
        if end.status == "completed":
            found = {node: book.cached_result(node, ROOT) for node in roots}
            missing = [node for node, result in found.items() if result is None]
            if missing:
                stored = await self._journal.results(book.accepted.id, [(node, ROOT) for node in missing])
                found |= zip(missing, stored, strict=True)
        else:
            facts = [each.fact for each in await self._journal.facts(book.accepted.id) if not each.late]
            found = {each.node: each for each in facts if isinstance(each, NodeResult) and not each.path}
        start = shown(f"{book.accepted.id}/start", book.accepted.input)
        context = {"$trigger": start} | {f"${plan.ids[node]}": start for node in sorted(plan.triggers)}
        for result in _with_value(found.get(node) for node in roots):
            await self._fetch(book, result)
            context[f"${plan.ids[result.node]}"] = output_of(book, result)
        return context

    async def _fetch(self, book: ExecutionData, result: NodeResult) -> None:
        """What a node only passed on lies with another one."""
        kept = result.value
        while type(kept) is Same and kept.ref.kind == "result":
            key = (kept.ref.node, kept.ref.path)
            found = book.cached_result(*key)
            if found is None:
                (found,) = await self._journal.results(book.accepted.id, [key])
                if found is None:
                    return
                book.cache_result(found)
            kept = found.value


def _with_value(results: Iterator[NodeResult | None]) -> Iterator[NodeResult]:
    for each in results:
        if each is not None and each.status in ("ok", "failed") and each.items is None:
            yield each


def _fitting(book: ExecutionData, context: dict[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    """The largest outputs by name, until the rest fits into a message."""
    total = sum(len(bytes(each)) for each in context.values())
    for name in sorted(context, key=lambda each: (-len(bytes(context[each])), each)):
        if total <= MAX_BYTES:
            break
        size = len(bytes(context[name]))
        of_start = name[1:] not in book.plan.index or book.plan.index[name[1:]] in book.plan.triggers
        where = "start" if of_start else f"{name[1:]}@/"
        context[name] = reference(f"{book.accepted.id}/{where}", size)
        total -= size - len(bytes(context[name]))
    return context


def _error(error: Error) -> ErrorObject:
    return ErrorObject(error.message, error.code, error.details)
