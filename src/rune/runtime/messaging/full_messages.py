"""Inlining: messages that bring everything along, for readers without access to the stores.

Each has the definition, and the outputs that its node may see. A worker needs neither, and reads neither.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from rune.codec.facts import encode_value
from rune.codec.messages import MessageContext, MessageTooLargeError, encode_hint
from rune.core.definition.model import canonical
from rune.core.execution.decision import FinishExecution
from rune.core.execution.outcome import Error
from rune.core.execution.scope import ExpressionScope
from rune.core.execution.token import Token
from rune.core.plan.graph import ancestors
from rune.core.plan.model import Plan
from rune.ports.clock import Clock
from rune.runtime.lifecycle.finisher import Finisher
from rune.runtime.values import Cache, ExecutionData, ExecutionDataCache, ValueNotLoaded

log = logging.getLogger("rune.inlining")

CACHE_BYTES = 16 * 1024 * 1024


class SelfContainedMessages:
    """Writes them. `most`: bytes of one message."""

    def __init__(self, books: ExecutionDataCache, endings: Finisher, clock: Clock, most: int) -> None:
        self._books = books
        self._endings = endings
        self._clock = clock
        self._most = most
        self._plans = Cache(CACHE_BYTES)

    async def message(self, execution: str, token: Token, names: MessageContext, priority: int) -> bytes:
        """The message of a token, in full."""
        book = await self._books.get(execution)
        definition, upstream = self._of_plan(book.plan)
        self._check(execution, len(definition))
        context = await self._context(book, token, upstream, self._most - len(definition))
        names = replace(names, definition=definition, context=context)
        body = encode_hint(execution, token, names, priority)
        self._check(execution, len(body))
        return body

    async def refuse(self, execution: str, error: MessageTooLargeError) -> None:
        """End the execution: nobody would ever be told of its next node."""
        log.error("%s is ended: %s", execution, error.message)
        failure = Error(error.code, error.message, {}, True)
        await self._endings.finish(execution, FinishExecution("failed", failure), self._clock.now())

    def _check(self, execution: str, size: int) -> None:
        if size > self._most:
            raise MessageTooLargeError(execution, size, self._most)

    def _of_plan(self, plan: Plan) -> tuple[bytes, tuple[int, ...]]:
        """The definition as it is written, and who lies upstream of whom."""
        found: tuple[bytes, tuple[int, ...]] | None = self._plans.get(plan.hash)
        if found is None:
            found = canonical(plan.definition), ancestors(plan.graph)
            self._plans.put(plan.hash, found, len(found[0]) + len(plan.ids) ** 2 // 8)
        return found

    async def _context(
        self, book: ExecutionData, token: Token, upstream: tuple[int, ...], most: int
    ) -> bytes:
        """Everything that expressions of the node may name, and has a value, but the lists that items come from."""
        page = book.reader()
        sight = page.scope(token, 0.0, "")
        context: dict[str, msgspec.Raw] = {}
        size = 0
        for root in _roots(book.plan, token, upstream[token.node]):
            while True:
                try:
                    found = _value(sight, root)
                    break
                except ValueNotLoaded as missing:
                    await book.load(missing.what, page)
            if found is not None:
                context[root] = found
                size += len(bytes(found))
                if size > most:
                    self._check(book.accepted.id, self._most + size - most)
        return msgspec.json.encode(context)


def _roots(plan: Plan, token: Token, upstream: int) -> Iterator[str]:
    yield "$trigger"
    for index in plan.graph.order:
        node = plan.nodes[index]
        seen = upstream >> index & 1 and not node.fans_out
        # Items of one split see nothing from within another, however deep both are.
        around = node.depth == 0 or (
            2 * node.depth <= len(token.path) and token.path[2 * node.depth - 2] == node.split
        )
        if seen and around:
            yield f"${node.id}"
    if token.path:
        yield "$item"
        yield "$index"
    if token.error is not None:
        yield "$error"


def _value(sight: ExpressionScope, root: str) -> msgspec.Raw | None:
    """None where there is none: it was skipped, or lost a race."""
    try:
        return msgspec.Raw(encode_value(sight[root]))
    except KeyError:
        return None
