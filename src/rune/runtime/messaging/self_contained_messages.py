"""Messages for consumers without access to the stores: they carry the definition and all outputs that their node can
read. Rune's own workers ignore both.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator

import msgspec
from msgspec.structs import replace

from rune.codec.facts import encode_value
from rune.codec.messages import MessageContext, MessageTooLargeError, encode_hint
from rune.core.definition.model import canonical
from rune.core.execution.decision import FinishExecution
from rune.core.execution.outcome import Error
from rune.core.execution.scope import ExpressionScope
from rune.core.execution.token import Token
from rune.core.limits import LIMITS
from rune.core.plan.graph import ancestors
from rune.core.plan.model import Plan
from rune.errors import LimitExceededError
from rune.nodes.base import check_json
from rune.ports.clock import Clock
from rune.runtime.execution_data import ExecutionData, ExecutionDataCache
from rune.runtime.value_cache import Cache
from rune.runtime.value_reader import ValueReader
from rune.runtime.value_refs import ValueNotLoaded

log = logging.getLogger("rune.full_messages")

CACHE_BYTES = 16 * 1024 * 1024


Finish = Callable[[str, FinishExecution, int], Awaitable[object]]
"""Ends an execution; arguments as of `Finisher.finish`."""


class SelfContainedMessages:
    """Encodes messages of at most `max_bytes`."""

    def __init__(self, data_cache: ExecutionDataCache, finish: Finish, clock: Clock, max_bytes: int) -> None:
        self._data_cache = data_cache
        self._finish = finish
        self._clock = clock
        self._max_bytes = max_bytes
        self._plans = Cache(CACHE_BYTES)

    async def message(self, execution: str, token: Token, names: MessageContext, priority: int) -> bytes:
        """Encode the message of a token."""
        data = await self._data_cache.get(execution)
        definition, upstream = self._plan_details(data.plan)
        self._check_size(execution, len(definition))
        context = await self._context(data, token, upstream, self._max_bytes - len(definition))
        names = replace(names, definition=definition, context=context)
        body = encode_hint(execution, token, names, priority)
        self._check_size(execution, len(body))
        return body

    async def refuse(self, execution: str, error: MessageTooLargeError) -> None:
        """Fail an execution whose next message is too large to be sent."""
        log.error("%s failed: %s", execution, error.message)
        failure = Error(error.code, error.message, {}, True)
        await self._finish(execution, FinishExecution("failed", failure), self._clock.now())

    def _check_size(self, execution: str, size: int) -> None:
        if size > self._max_bytes:
            raise MessageTooLargeError(execution, size, self._max_bytes)

    def _plan_details(self, plan: Plan) -> tuple[bytes, tuple[int, ...]]:
        """Return the encoded definition and, for each node, the set of its ancestors as bits."""
        found: tuple[bytes, tuple[int, ...]] | None = self._plans.get(plan.hash)
        if found is None:
            found = canonical(plan.definition), ancestors(plan.graph)
            self._plans.put(plan.hash, plan.hash, found, len(found[0]) + len(plan.ids) ** 2 // 8)
        return found

    async def _context(
        self, data: ExecutionData, token: Token, upstream: tuple[int, ...], max_bytes: int
    ) -> bytes:
        """Encode all values that expressions of the node can read, except the lists that fan-outs iterate over."""
        reader = data.reader()
        scope = reader.scope(token, 0.0, "")
        context: dict[str, msgspec.Raw] = {}
        size = 0
        for root in _roots(data.plan, token, upstream[token.node]):
            while True:
                try:
                    shown = not _is_list(data.plan, reader, token, root)
                    value = _value(scope, root, max(0, max_bytes - size)) if shown else None
                    break
                except LimitExceededError:
                    raise MessageTooLargeError(
                        data.accepted.id, self._max_bytes + 1, self._max_bytes
                    ) from None
                except ValueNotLoaded as missing:
                    await data.load(missing.what, reader)
            if value is not None:
                context[root] = value
                size += len(bytes(value))
                if size > max_bytes:
                    self._check_size(data.accepted.id, self._max_bytes + size - max_bytes)
        return msgspec.json.encode(context)


def _roots(plan: Plan, token: Token, upstream: int) -> Iterator[str]:
    yield "$trigger"
    for index in plan.graph.order:
        node = plan.nodes[index]
        readable = upstream >> index & 1
        # Items of one fan-out cannot read values from within another, however deep both are.
        in_scope = node.depth == 0 or (
            2 * node.depth <= len(token.path) and token.path[2 * node.depth - 2] == node.split
        )
        if readable and in_scope:
            yield f"${node.id}"
    if token.path:
        yield "$item"
        yield "$index"
    if token.error is not None:
        yield "$error"


def _is_list(plan: Plan, reader: ValueReader, token: Token, root: str) -> bool:
    """Return whether a root is the list that a fan-out iterates over. The output of one that failed is its error."""
    index = plan.index.get(root[1:])
    if index is None or not plan.nodes[index].fans_out:
        return False
    result = reader.result(index, token.path[: 2 * plan.nodes[index].depth])
    return result is None or result.status != "failed"


def _value(scope: ExpressionScope, root: str, most: int) -> msgspec.Raw | None:
    """Return a value as JSON, or None if its node was skipped or lost a race. A value above `most` is not written."""
    try:
        value = scope[root]
    except KeyError:
        return None
    check_json(value, replace(LIMITS, output_bytes=most), what="message")
    return msgspec.Raw(encode_value(value))
