"""The values of an execution: loaded from journal and blob store when an expression first reads them, and stored.

Nothing is decoded or loaded before an expression needs it, and an output that equals the node's input is stored as a
reference. All executions of a process share one cache that is bounded by bytes.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import msgspec

from rune.codec.facts import Inline, Large, Paged, Same, StoredValue, decode_value, encode_value
from rune.core.execution.fact import ExecutionEnded, NodeResult
from rune.core.execution.scope import ExpressionScope, ValueSource
from rune.core.execution.token import Path, Ref, Token, token_name
from rune.core.limits import LIMITS, Limits
from rune.core.plan.model import Plan
from rune.errors import LimitExceededError, RuneError
from rune.nodes.base import Interruption
from rune.nodes.blobs import Blobs
from rune.ports.blobs import BlobStore
from rune.ports.clock import Clock
from rune.ports.journal import ExecutionRecord, Journal, StoredFact
from rune.runtime.plan_cache import PlanCache

Key = tuple[int, Path]

ABSENT = object()
CACHE_BYTES = 64 * 1024 * 1024
CACHE_ENTRY_BYTES = 200  # counted for each entry on top of its value
MAX_CACHED_EXECUTIONS = 10_000
MAX_CACHED_INPUT_BYTES = 64 * 1024 * 1024
IDLE_S = 30.0
"""An execution that was not used for this long is dropped from the cache; its record is read again if it goes on."""

MAX_PREFETCHED = 4_096
PAGES_PER_TURN = 64


class ExecutionNotFoundError(RuneError):
    """No execution is stored under this id."""

    code = "UNKNOWN_EXECUTION"


class SignalRef(msgspec.Struct, frozen=True):
    """Names a signal that is not loaded."""

    id: str


class ValueNotLoaded(Interruption):
    """A value is needed that is not in memory. Not an Exception, so that no node or expression can catch it."""

    def __init__(self, what: Key | SignalRef | str) -> None:
        super().__init__(what)
        self.what = what


class ExecutionDataCache:
    """Caches ExecutionData of running executions, with their values. Executions that have ended are dropped, and so are
    idle ones, because an execution may end in another process. The number of the others and the bytes of their start
    payloads are bounded."""

    def __init__(self, journal: Journal, blob: BlobStore, plans: PlanCache, clock: Clock) -> None:
        self._journal = journal
        self._blob = blob
        self._plans = plans
        self._clock = clock
        self._cache = Cache(CACHE_BYTES)
        self._open: OrderedDict[str, ExecutionData] = OrderedDict()
        self._input_bytes = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def value_bytes(self) -> int:
        """The approximate size of the cached values."""
        return self._cache.size

    def open(self, accepted: ExecutionRecord, plan: Plan) -> ExecutionData:
        """Add an execution that was just accepted."""
        self.forget(accepted.id)
        data = self._open[accepted.id] = ExecutionData(accepted, plan, self._journal, self._blob, self._cache)
        self._input_bytes += len(accepted.input)
        self._evict(data)
        return data

    def _evict(self, newest: ExecutionData) -> None:
        """Drop the executions that were not used for the longest time: idle ones, and those beyond the bounds."""
        idle_since = newest.used_at - IDLE_S
        while True:
            oldest = next(iter(self._open.values()))
            full = len(self._open) > MAX_CACHED_EXECUTIONS or self._input_bytes > MAX_CACHED_INPUT_BYTES
            if oldest is newest or (oldest.used_at > idle_since and not full):
                return
            self.forget(oldest.accepted.id)

    async def get(self, execution: str) -> ExecutionData:
        """Return the data of an execution, loading its record and plan if necessary."""
        found = self._open.get(execution)
        if found is not None:
            found.used_at = time.monotonic()
            self._open.move_to_end(execution)
            return found
        accepted = await self._journal.accepted(execution)
        if accepted is None:
            raise ExecutionNotFoundError(f"no execution has the id {execution}")
        return self.open(accepted, await self._plans.plan(accepted.hash))

    def close(self, execution: str) -> ExecutionData | None:
        """Drop an execution and return its data, whose values stay cached until `ExecutionData.forget`."""
        data = self._open.pop(execution, None)
        if data is not None:
            self._input_bytes -= len(data.accepted.input)
        return data

    def forget(self, execution: str) -> None:
        """Drop an execution and its values."""
        if self.close(execution) is not None:
            self._cache.drop_all(execution)

    def forget_ended(self, execution: str) -> None:
        """Drop an execution that ended in another process. If it ends in this one, its completion still needs it."""
        data = self._open.get(execution)
        if data is not None and not data.ending:
            self.forget(execution)

    async def end(self, execution: str) -> ExecutionEnded | None:
        """Return the end of an execution; None if it has not ended."""
        return await self._journal.end(execution)

    async def facts(self, execution: str) -> list[StoredFact]:
        """Return the facts of an execution, in commit order."""
        return await self._journal.facts(execution)

    def clock_since(self, claimed: int) -> ExecutionClock:
        """Return the clock of an execution whose token was claimed at this time of its store."""
        return ExecutionClock(self._clock, claimed)


class ExecutionClock:
    """The time of an execution while a worker runs one of its tokens: the store's time at the claim, plus the time that
    has passed on this machine since. The times of workers whose clocks differ thus keep the order of the store."""

    __slots__ = ("_claimed", "_clock", "_since")

    def __init__(self, clock: Clock, claimed: int) -> None:
        self._clock = clock
        self._claimed = claimed
        self._since = clock.now()

    def now(self) -> int:
        """Return the time in milliseconds since the epoch, never before the claim."""
        return self._claimed + max(0, self._clock.now() - self._since)


class ExecutionData:
    """The plan, start payload and cached values of one execution."""

    __slots__ = (
        "_blob",
        "_blobs",
        "_cache",
        "_journal",
        "_start",
        "accepted",
        "ending",
        "execution",
        "plan",
        "used_at",
    )

    def __init__(
        self, accepted: ExecutionRecord, plan: Plan, journal: Journal, blob: BlobStore, cache: Cache
    ) -> None:
        self.accepted = accepted
        self.plan = plan
        self.used_at = time.monotonic()
        self.ending = False
        """Whether this process has ended the execution and is about to report it."""
        self._journal = journal
        self._blob = blob
        self._blobs: Blobs | None = None
        self._cache = cache
        self._start: Any = ABSENT
        self.execution = {"id": accepted.id, "workflow_id": accepted.workflow}

    @property
    def blobs(self) -> Blobs:
        if self._blobs is None:
            self._blobs = Blobs(self._blob, self.accepted.id, self.accepted.needs)
        return self._blobs

    @property
    def start(self) -> Any:
        """The start payload, decoded on first use."""
        if self._start is ABSENT:
            self._start = decode_value(self.accepted.input)
        return self._start

    def reader(self) -> ValueReader:
        """Return a view of the values for one attempt."""
        return ValueReader(self)

    def cache_result(self, result: NodeResult) -> None:
        """Cache a recorded result: the next node usually reads it."""
        value = result.value
        size = len(value.data) if type(value) is Inline else 64
        self._put((self.accepted.id, result.node, result.path), result, size)

    def cache_decoded(self, result: NodeResult, value: Any, size: int) -> None:
        """Cache the decoded value of a result. It is shared between readers and must not be modified."""
        self._put((self.accepted.id, result.node, result.path, "value"), value, size * 4)

    def cached_result(self, node: int, path: Path) -> NodeResult | None:
        found: NodeResult | None = self._cache.get((self.accepted.id, node, path))
        return found

    def count(self, split: int, path: Path) -> int:
        """Return the number of items of a fan-out, or 0 if its result is not cached."""
        found = self.cached_result(split, path)
        return 0 if found is None else found.items or 0

    async def load_counts(self, paths: Iterable[Path]) -> None:
        """Load the results of the splits around these paths that are not cached, so that `count` knows their items."""
        splits = {(path[at], path[:at]) for path in paths for at in range(0, len(path), 2)}
        missing = [key for key in splits if self.cached_result(*key) is None]
        if missing:
            for result in await self._journal.results(self.accepted.id, missing):
                if result is not None:
                    self.cache_result(result)

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
        self._cache.put(self.accepted.id, key, value, size)

    def forget(self) -> None:
        """Drop the cached values once the execution has ended and its completion is published."""
        self._cache.drop_all(self.accepted.id)

    async def load(self, what: Key | SignalRef | str, reader: ValueReader) -> None:
        """Load what a reader raised ValueNotLoaded for."""
        if isinstance(what, SignalRef):
            signal = await self._journal.signal(self.accepted.id, what.id)
            if signal is None:
                raise KeyError(what)
            reader.signals[what.id] = signal.value
            return
        if isinstance(what, str):
            data = await self._blob.get(what)
            if data is None:
                raise KeyError(what)
            reader.blobs[what] = data
            return
        keys = reader.missing(what)
        for key, result in zip(keys, await self._journal.results(self.accepted.id, keys), strict=True):
            if result is None:
                reader.absent.add(key)
            else:
                reader.fetched[key] = result
                self.cache_result(result)

    async def store_output(
        self, node: int, path: Path, value: Any, payload: Ref, entry: Any, limits: Limits = LIMITS
    ) -> StoredValue:
        """Store an output inline in its row, as a blob, or as a reference if it is the value that entered the node."""
        if value is entry and value is not None:
            return Same(payload)
        data = encode_value(value)
        if len(data) <= limits.inline_bytes:
            return Inline(data)
        return await store_value(
            self._blob, f"{self.accepted.id}/{token_name(node, path, self.plan.ids)}", data, limits
        )

    async def store_items(self, node: int, path: Path, items: list[Any], limits: Limits = LIMITS) -> Paged:
        """Store the items of a fan-out in pages bounded by count and bytes."""
        key = f"{self.accepted.id}/{token_name(node, path, self.plan.ids)}/items"
        starts: list[int] = []
        writes = []
        for first, data in _pages(items, limits):
            writes.append(self._blob.put(f"{key}/{len(starts)}", data))
            starts.append(first)
            if len(starts) % PAGES_PER_TURN == 0:
                await asyncio.sleep(0)
        await asyncio.gather(*writes)
        return Paged(key, len(items), tuple(starts))


class ValueReader(ValueSource):
    """Reads values for one attempt. Raises ValueNotLoaded for a value that is not in memory; the caller loads it and
    starts over."""

    def __init__(self, data: ExecutionData) -> None:
        self._plan = data.plan
        self._data = data
        self.own: dict[Key, NodeResult] = {}
        self.values: dict[Key, Any] = {}
        self.fetched: dict[Key, NodeResult] = {}
        self.absent: set[Key] = set()
        self.blobs: dict[str, bytes] = {}
        self.signals: dict[str, StoredValue | None] = {}
        self._ahead: dict[int, int] = {}  # by node: how many items the next miss loads
        self._scope: ExpressionScope | None = None
        self.execution = data.execution

    def scope(self, token: Token, now: float, seed: str) -> ExpressionScope:
        self._scope = scope = ExpressionScope(self, self._plan, token, now, seed)
        return scope

    def close(self) -> None:
        """Break the reference cycle with the scope, so that freeing it needs no pause for garbage collection."""
        self._scope = None

    def missing(self, missing: Key) -> list[Key]:
        """Return what to load for a miss. Each miss doubles the number of items: a node may read one after another."""
        node, path = missing
        if not path:
            return [missing]
        count = self._ahead.get(node, 1)
        self._ahead[node] = min(2 * count, MAX_PREFETCHED)
        keys = [(node, (*path[:-1], path[-1] + offset)) for offset in range(count)]
        return [missing, *(key for key in keys[1:] if key not in self.fetched and key not in self.absent)]

    def entry_values(self) -> Any:
        """Return the payload of the node that ran last, or ABSENT if the node did not read it."""
        assert self._scope is not None
        return self._scope.get("$json", ABSENT)

    def result(self, node: int, path: Path) -> NodeResult | None:
        """Return the result of a token from this run, from what was loaded, or from the cache."""
        key = (node, path)
        found = self.own.get(key) or self.fetched.get(key) or self._data.cached_result(node, path)
        if found is not None or key in self.absent:
            return found
        raise ValueNotLoaded(key)

    def value(self, ref: Ref, token: Token | None = None) -> Any:
        return self._data.start if ref.kind == "start" else super().value(ref, token)

    def output(self, result: NodeResult) -> Any:
        key = (result.node, result.path)
        if key in self.values:
            return self.values[key]
        stored = result.value
        if type(stored) is Same:
            return self.value(stored.ref)
        found = self._data.decoded(*key)
        if found is None:
            data = stored.data if type(stored) is Inline else self._bytes(stored)
            found = decode_value(data)
            self._data.cache_decoded(result, found, len(data))
        self.values[key] = found
        return found

    def signal(self, id: str) -> Any:
        if id not in self.signals:
            raise ValueNotLoaded(SignalRef(id))
        stored = self.signals[id]
        if stored is None:
            return None
        return decode_value(stored.data if type(stored) is Inline else self._bytes(stored))

    def _bytes(self, stored: StoredValue) -> bytes:
        if type(stored) is Paged:
            parts = [self._blob(f"{stored.key}/{index}")[1:-1] for index in range(len(stored.starts))]
            return b"[" + b",".join(parts) + b"]"
        assert type(stored) is Large
        return self._blob(stored.key)

    def _blob(self, key: str) -> bytes:
        data = self.blobs.get(key)
        if data is None:
            raise ValueNotLoaded(key)
        return data

    def item(self, result: NodeResult, index: int) -> Any:
        stored = result.value
        assert type(stored) is Paged
        number = _page_number(stored.starts, index)
        key = f"{stored.key}/{number}"
        items = self._data.item_page(key)
        if items is None:
            data = self._blob(key)
            items = decode_value(data)
            self._data.cache_page(key, items, len(data))
        return items[index - stored.starts[number]]


async def store_value(blob: BlobStore, key: str, data: bytes, limits: Limits = LIMITS) -> Inline | Large:
    """Return how to store a value: inline if small, else as a blob, written before any row refers to it."""
    if len(data) <= limits.inline_bytes:
        return Inline(data)
    if len(data) > limits.output_bytes:
        raise LimitExceededError("output bytes", limits.output_bytes, len(data))
    await blob.put(key, data)
    return Large(key, len(data))


def _pages(items: list[Any], limits: Limits) -> Iterator[tuple[int, bytes]]:
    """Yield pages of whole items as JSON, each with the index of its first item."""
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


def _page_number(starts: tuple[int, ...], index: int) -> int:
    low, high = 0, len(starts) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if starts[middle] <= index else (low, middle - 1)
    return low


class Cache:
    """A cache bounded by bytes that evicts the least recently used entry first. Every entry has an owner, whose entries
    can be dropped together. Evaluations in threads use it too."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self.size = 0
        """The size of all entries."""
        self._entries: OrderedDict[Hashable, tuple[Any, int, str]] = OrderedDict()
        self._keys: dict[str, set[Hashable]] = {}

    def get(self, key: Hashable) -> Any:
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found[0]

    def put(self, owner: str, key: Hashable, value: Any, size: int) -> None:
        """Cache a value of about this many bytes, unless it is larger than the whole cache."""
        with self._lock:
            if key in self._entries:
                self._drop(key)
            size += CACHE_ENTRY_BYTES
            if size > self._limit:
                return
            self._entries[key] = (value, size, owner)
            self._keys.setdefault(owner, set()).add(key)
            self.size += size
            while self.size > self._limit:
                self._drop(next(iter(self._entries)))

    def drop_all(self, owner: str) -> None:
        """Drop the entries of an owner."""
        with self._lock:
            for key in list(self._keys.get(owner, ())):
                self._drop(key)

    def _drop(self, key: Hashable) -> None:
        _, size, owner = self._entries.pop(key)
        self.size -= size
        keys = self._keys[owner]
        keys.remove(key)
        if not keys:
            del self._keys[owner]
