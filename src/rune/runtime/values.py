"""A cache that counts bytes, not entries: what it holds does not grow with the number of items or nodes.

The book of one execution: where its values are read from and how they are written.

Nothing is decoded before an expression touches it, nothing is fetched before it is needed, nothing is written
twice.

The books of the executions that are being worked on.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Any

import msgspec

from rune.codec.facts import Inline, Large, Paged, Same, StoredValue, decode_value, encode_value
from rune.core.execution.fact import NodeResult
from rune.core.execution.scope import ExpressionScope, ValueSource
from rune.core.execution.token import Path, Ref, Token, token_name
from rune.core.limits import LIMITS, Limits
from rune.core.plan.model import Plan
from rune.errors import LimitExceededError, RuneError
from rune.nodes.base import Interruption
from rune.nodes.blobs import Blobs
from rune.ports.blobs import BlobStore
from rune.ports.clock import Clock
from rune.ports.journal import ExecutionRecord, Journal
from rune.runtime.plan_cache import PlanCache

OVERHEAD = 200


class Cache:
    """Least recently used goes first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable) -> Any:
        """What is kept under a key, or None."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return found[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Keep a value of about this many bytes. One that is larger than the cache is not kept."""
        before = self._entries.pop(key, None)
        if before is not None:
            self._size -= before[1]
        size += OVERHEAD
        if size > self._limit:
            return
        self._entries[key] = (value, size)
        self._size += size
        while self._size > self._limit:
            _, (_, freed) = self._entries.popitem(last=False)
            self._size -= freed

    def drop(self, key: Hashable) -> None:
        """Nobody will ask for it again."""
        found = self._entries.pop(key, None)
        if found is not None:
            self._size -= found[1]


Key = tuple[int, Path]
ABSENT = object()
MAX_PREFETCHED = 4_096
MAX_KNOWN_VALUES = 256
"""Values whose place is known; of an execution with more, the rest goes when it has not been used for long."""


class SignalRef(msgspec.Struct, frozen=True):
    """A signal that a page lacks."""

    id: str


class ValueNotLoaded(Interruption):
    """A value is needed that is not in memory. Not an Exception: no node and no expression may swallow it."""

    def __init__(self, what: Key | SignalRef | str) -> None:
        super().__init__(what)
        self.what = what


class ExecutionData:
    """Plan, start payload and values of an execution."""

    __slots__ = ("_blob", "_blobs", "_cache", "_journal", "_keys", "_start", "accepted", "execution", "plan")

    def __init__(
        self, accepted: ExecutionRecord, plan: Plan, journal: Journal, blob: BlobStore, cache: Cache
    ) -> None:
        self.accepted = accepted
        self.plan = plan
        self._journal = journal
        self._blob = blob
        self._blobs: Blobs | None = None
        self._cache = cache
        self._keys: list[Hashable] = []
        self._start: Any = ABSENT
        self.execution = {"id": accepted.id, "workflow_id": accepted.workflow}

    @property
    def blobs(self) -> Blobs:
        """Bytes that nodes keep."""
        if self._blobs is None:
            self._blobs = Blobs(self._blob, self.accepted.id, self.accepted.needs)
        return self._blobs

    @property
    def start(self) -> Any:
        """The start payload."""
        if self._start is ABSENT:
            self._start = decode_value(self.accepted.input)
        return self._start

    def reader(self) -> ValueReader:
        """The values as one attempt reads them."""
        return ValueReader(self)

    def cache_result(self, result: NodeResult) -> None:
        """A result that is durable now: the next node will want it."""
        value = result.value
        size = len(value.data) if type(value) is Inline else 64
        self._put((self.accepted.id, result.node, result.path), result, size)

    def cache_decoded(self, result: NodeResult, value: Any, size: int) -> None:
        """What a result stands for, as an object. Nobody changes it."""
        self._put((self.accepted.id, result.node, result.path, "value"), value, size * 4)

    def cached_result(self, node: int, path: Path) -> NodeResult | None:
        found: NodeResult | None = self._cache.get((self.accepted.id, node, path))
        return found

    def count(self, split: int, path: Path) -> int:
        """How many items a fan-out has; 0 where that is not known here."""
        found = self.cached_result(split, path)
        return 0 if found is None else found.items or 0

    def decoded(self, node: int, path: Path) -> Any:
        return self._cache.get((self.accepted.id, node, path, "value"))

    def result_bytes(self, key: str) -> bytes | None:
        found: bytes | None = self._cache.get(key)
        return found

    def item_page(self, key: str) -> list[Any] | None:
        found: list[Any] | None = self._cache.get((key, "page"))
        return found

    def cache_page(self, key: str, items: list[Any], size: int) -> None:
        self._put((key, "page"), items, size * 4)

    def _put(self, key: Hashable, value: Any, size: int) -> None:
        if len(self._keys) < MAX_KNOWN_VALUES:
            self._keys.append(key)
        self._cache.put(key, value, size)

    def forget(self) -> None:
        """It has ended, and all that was to be told of it is told: others need the place in memory."""
        for key in self._keys:
            self._cache.drop(key)
        self._keys.clear()

    async def load(self, what: Key | SignalRef | str, page: ValueReader) -> None:
        """Bring what a page lacked."""
        if isinstance(what, SignalRef):
            signal = await self._journal.signal(self.accepted.id, what.id)
            if signal is None:
                raise KeyError(what)
            page.signals[what.id] = signal.value
            return
        if isinstance(what, str):
            data = await self._blob.get(what)
            if data is None:
                raise KeyError(what)
            page.blobs[what] = data
            return
        keys = page.missing(what)
        for key, result in zip(keys, await self._journal.results(self.accepted.id, keys), strict=True):
            if result is None:
                page.absent.add(key)
            else:
                page.fetched[key] = result
                self.cache_result(result)

    async def store_output(
        self, node: int, path: Path, value: Any, payload: Ref, entered: Any, limits: Limits = LIMITS
    ) -> StoredValue:
        """How an output is kept: in its row, as a blob, or, where it is what entered the node, as a pointer to that."""
        if value is entered and value is not None:
            return Same(payload)
        data = encode_value(value)
        if len(data) <= limits.inline_bytes:
            return Inline(data)
        return await store_value(
            self._blob, f"{self.accepted.id}/{token_name(node, path, self.plan.ids)}", data, limits
        )

    async def store_items(self, node: int, path: Path, items: list[Any], limits: Limits = LIMITS) -> Paged:
        """The items of a fan-out, in pages bounded by count and bytes."""
        key = f"{self.accepted.id}/{token_name(node, path, self.plan.ids)}/items"
        starts: list[int] = []
        writes = []
        for first, data in _pages(items, limits):
            writes.append(self._blob.put(f"{key}/{len(starts)}", data))
            starts.append(first)
        await asyncio.gather(*writes)
        return Paged(key, len(items), tuple(starts))


async def store_value(blob: BlobStore, key: str, data: bytes, limits: Limits = LIMITS) -> Inline | Large:
    """A value as JSON bytes: small ones stay in their row, large ones lie in the blob store before a row names them."""
    if len(data) <= limits.inline_bytes:
        return Inline(data)
    if len(data) > limits.output_bytes:
        raise LimitExceededError("output bytes", limits.output_bytes, len(data))
    await blob.put(key, data)
    return Large(key, len(data))


def _pages(items: list[Any], limits: Limits) -> Iterator[tuple[int, bytes]]:
    """Whole items, so many and so many bytes to a page: the index of the first, and the page as JSON."""
    page: list[bytes] = []
    size = first = 0
    for index, item in enumerate(items):
        data = encode_value(item)
        if page and (len(page) >= limits.page_items or size + len(data) > limits.page_bytes):
            yield first, b"[" + b",".join(page) + b"]"
            page, size, first = [], 0, index
        page.append(data)
        size += len(data)
    if page:
        yield first, b"[" + b",".join(page) + b"]"


class ValueReader(ValueSource):
    """What one attempt reads. A value that is not in memory stops the attempt until it was fetched."""

    def __init__(self, book: ExecutionData) -> None:
        self._plan = book.plan
        self._book = book
        self.own: dict[Key, NodeResult] = {}
        self.values: dict[Key, Any] = {}
        self.fetched: dict[Key, NodeResult] = {}
        self.absent: set[Key] = set()
        self.blobs: dict[str, bytes] = {}
        self.signals: dict[str, StoredValue | None] = {}
        self._ahead: dict[int, int] = {}  # by node: how many items of it are fetched at the next miss
        self._sight: ExpressionScope | None = None
        self.execution = book.execution

    def scope(self, token: Token, now: float, seed: str) -> ExpressionScope:
        self._sight = sight = ExpressionScope(self, self._plan, token, now, seed)
        return sight

    def close(self) -> None:
        """Let go of what looks at this page: garbage that holds itself is found by a collector that stops everybody."""
        self._sight = None

    def missing(self, missing: Key) -> list[Key]:
        """What to fetch for a miss: whoever lacks one item after the other gets more of them each time."""
        node, path = missing
        if not path:
            return [missing]
        count = self._ahead.get(node, 1)
        self._ahead[node] = min(2 * count, MAX_PREFETCHED)
        keys = [(node, (*path[:-1], path[-1] + offset)) for offset in range(count)]
        return [missing, *(key for key in keys[1:] if key not in self.fetched and key not in self.absent)]

    def entry_values(self) -> Any:
        """The payload of the node that ran last, if it looked at it."""
        assert self._sight is not None
        return self._sight.get("$json", ABSENT)

    def result(self, node: int, path: Path) -> NodeResult | None:
        """The result of a token: of this run, from the cache, or fetched."""
        key = (node, path)
        found = self.own.get(key) or self.fetched.get(key) or self._book.cached_result(node, path)
        if found is not None or key in self.absent:
            return found
        raise ValueNotLoaded(key)

    def value(self, ref: Ref, token: Token | None = None) -> Any:
        return self._book.start if ref.kind == "start" else super().value(ref, token)

    def output(self, result: NodeResult) -> Any:
        key = (result.node, result.path)
        if key in self.values:
            return self.values[key]
        kept = result.value
        if type(kept) is Same:
            return self.value(kept.ref)
        found = self._book.decoded(*key)
        if found is None:
            data = kept.data if type(kept) is Inline else self._bytes(kept)
            found = decode_value(data)
            self._book.cache_decoded(result, found, len(data))
        self.values[key] = found
        return found

    def signal(self, id: str) -> Any:
        """What a signal brought."""
        if id not in self.signals:
            raise ValueNotLoaded(SignalRef(id))
        kept = self.signals[id]
        if kept is None:
            return None
        return decode_value(kept.data if type(kept) is Inline else self._bytes(kept))

    def _bytes(self, kept: StoredValue) -> bytes:
        if type(kept) is Paged:
            parts = [self._blob(f"{kept.key}/{index}")[1:-1] for index in range(len(kept.starts))]
            return b"[" + b",".join(parts) + b"]"
        assert type(kept) is Large
        return self._blob(kept.key)

    def _blob(self, key: str) -> bytes:
        data = self.blobs.get(key)
        if data is None:
            raise ValueNotLoaded(key)
        return data

    def item(self, result: NodeResult, index: int) -> Any:
        kept = result.value
        assert type(kept) is Paged
        number = _page_number(kept.starts, index)
        key = f"{kept.key}/{number}"
        items = self._book.item_page(key)
        if items is None:
            data = self._blob(key)
            items = decode_value(data)
            self._book.cache_page(key, items, len(data))
        return items[index - kept.starts[number]]


def _page_number(starts: tuple[int, ...], index: int) -> int:
    low, high = 0, len(starts) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if starts[middle] <= index else (low, middle - 1)
    return low


MAX_CACHED_EXECUTIONS = 10_000
CACHE_BYTES = 64 * 1024 * 1024


class ExecutionNotFoundError(RuneError):
    """An id under which no execution is stored."""

    code = "UNKNOWN_EXECUTION"


class ExecutionDataCache:
    """Opened when first touched, closed when the execution ends or others need the place."""

    def __init__(self, journal: Journal, blob: BlobStore, plans: PlanCache, clock: Clock) -> None:
        self._journal = journal
        self._blob = blob
        self._plans = plans
        self._clock = clock
        self._cache = Cache(CACHE_BYTES)
        self._open: OrderedDict[str, ExecutionData] = OrderedDict()

    def open(self, accepted: ExecutionRecord, plan: Plan) -> ExecutionData:
        """A book for an execution that was accepted this moment."""
        book = self._open[accepted.id] = ExecutionData(accepted, plan, self._journal, self._blob, self._cache)
        if len(self._open) > MAX_CACHED_EXECUTIONS:
            self._open.popitem(last=False)
        return book

    async def get(self, execution: str) -> ExecutionData:
        """The book of an execution."""
        found = self._open.get(execution)
        if found is not None:
            return found
        accepted = await self._journal.accepted(execution)
        if accepted is None:
            raise ExecutionNotFoundError(f"no execution has the id {execution}")
        return self.open(accepted, await self._plans.plan(accepted.hash))

    def close(self, execution: str) -> None:
        """Nothing more will be asked for."""
        self._open.pop(execution, None)

    def cached(self, claimed: int) -> int:
        """The time of an execution whose clock said `claimed` when the token was claimed."""
        return max(claimed, self._clock.now())
