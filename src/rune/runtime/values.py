"""The values of an execution: loaded from journal and blob store when an expression first reads them, and stored.

Nothing is decoded or loaded before an expression needs it, and an output that equals the node's input is stored as a
reference. All executions of a process share one cache that is bounded by bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from functools import partial
from typing import Any

import msgspec

from rune.codec.facts import (
    MAX_PACKED_BYTES,
    PACK_ITEMS,
    RESULT_BYTES,
    PackedResults,
    decode_value,
    encode_value,
)
from rune.core.execution.fact import ExecutionEnded, NodeResult, TokenFact
from rune.core.execution.scope import ExpressionScope, Joined, ValueSource
from rune.core.execution.state import item_entry
from rune.core.execution.stored_value import Inline, Large, Paged, Same, StoredValue
from rune.core.execution.token import Path, Ref, Token, token_name
from rune.core.limits import LIMITS, Limits
from rune.core.plan.model import Plan
from rune.errors import LimitExceededError, RuneError
from rune.nodes.base import Interruption, check_json
from rune.nodes.blobs import Blobs
from rune.ports.clock import Clock
from rune.ports.journal import BlobStore, ExecutionRecord, Journal, StoredFact
from rune.runtime.off_loop import off_loop, off_loop_in_turn
from rune.runtime.plan_cache import PlanCache

Key = tuple[int, Path]

ABSENT = object()
CACHE_BYTES = 64 * 1024 * 1024
CACHE_ENTRY_BYTES = 400  # counted for each entry on top of its value
RESULT_OBJECT_BYTES = 300  # of a result that is not packed, besides its value
MAX_CACHED_EXECUTIONS = 10_000
MAX_CACHED_INPUT_BYTES = 64 * 1024 * 1024
IDLE_S = 30.0
"""An execution that was not used for this long is dropped from the cache; its record is read again if it goes on."""

MAX_DECODED_INLINE_BYTES = 256 * 1024
"""A larger start payload is decoded in a thread."""

MAX_PREFETCHED = 4_096
MAX_PREFETCHED_PAGES = 32
PAGES_PER_TURN = 64
RESULTS_PER_TURN = 2_000
KEPT_PAGES = 48
"""Decoded pages of a fan-out: the largest window of items (`max_in_flight`) has 40."""


class ExecutionNotFoundError(RuneError):
    """No execution is stored under this id."""

    code = "UNKNOWN_EXECUTION"


class SignalRef(msgspec.Struct, frozen=True):
    """Names a signal that is not loaded."""

    id: str


class PagesRef(msgspec.Struct, frozen=True):
    """Names pages of the items of a fan-out that are not loaded."""

    key: str
    numbers: range


class StartRef(msgspec.Struct, frozen=True):
    """Names the start payload, if it is large and not decoded."""


Missing = Key | SignalRef | PagesRef | StartRef | str
"""A result, a signal, pages of items, the start payload, or a blob."""


class ValueNotLoaded(Interruption):
    """A value is needed that is not in memory. Not an Exception, so that no node or expression can catch it."""

    def __init__(self, what: Missing) -> None:
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
        self._input_bytes += input_size(accepted)
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

    def count(self, execution: str, path: Path) -> int:
        """Return the number of items of the fan-out that this scope is an item of; 0 if it is not cached."""
        found = self._open.get(execution)
        return 0 if found is None else found.count(path[-2], path[:-2])

    def find(self, execution: str) -> tuple[ExecutionRecord, Plan] | None:
        """Return the record and the plan of a cached execution."""
        found = self._open.get(execution)
        return None if found is None else (found.accepted, found.plan)

    def cached(self, execution: str) -> ExecutionData | None:
        """Return the data of an execution if it is cached. Every token asks for it several times, so callers try this
        before the coroutine `get`."""
        found = self._open.get(execution)
        if found is not None:
            found.used_at = time.monotonic()
            self._open.move_to_end(execution)
        return found

    async def get(self, execution: str, accepted: ExecutionRecord | None = None) -> ExecutionData:
        """Return the data of an execution, loading its plan and, unless it is given, its record if necessary."""
        found = self.cached(execution)
        if found is not None:
            return found
        if accepted is None:
            accepted = await self._journal.accepted(execution)
        if accepted is None:
            raise ExecutionNotFoundError(f"no execution has the id {execution}")
        return self.open(accepted, await self._plans.plan(accepted.hash))

    def close(self, execution: str) -> ExecutionData | None:
        """Drop an execution and return its data, whose values stay cached until `ExecutionData.forget`."""
        data = self._open.pop(execution, None)
        if data is not None:
            self._input_bytes -= input_size(data.accepted)
        return data

    def forget(self, execution: str) -> None:
        """Drop an execution and its values."""
        if self.close(execution) is not None:
            self._cache.drop_all(execution)

    def keep_ending(self, execution: str) -> None:
        """Keep an execution that this process is about to end when it is notified of the end."""
        data = self._open.get(execution)
        if data is not None:
            data.ending = True

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

    async def facts_of_token(self, execution: str, node: int, path: Path) -> list[TokenFact]:
        """Return the result, failed attempts and suspensions of one token, in commit order."""
        return await self._journal.facts_of_token(execution, node, path)

    def clock_since(self, claimed: int) -> ExecutionClock:
        """Return the clock of an execution whose token was claimed at this time of its store."""
        return ExecutionClock(self._clock, claimed, self._clock.now())


class ExecutionClock(msgspec.Struct, frozen=True, eq=False):
    """The time of an execution while a worker runs one of its tokens: the store's time at the claim, plus the time that
    has passed on this machine since. The times of workers whose clocks differ thus keep the order of the store."""

    clock: Clock
    claimed: int
    since: int  # when the clock of this machine showed the time of the claim

    def now(self) -> int:
        """Return the time in milliseconds since the epoch, never before the claim."""
        passed = self.clock.now() - self.since
        return self.claimed + passed if passed > 0 else self.claimed


class ExecutionData:
    """The plan, start payload and cached values of one execution."""

    __slots__ = (
        "_blob",
        "_blobs",
        "_cache",
        "_decoded",
        "_journal",
        "_max_decoded",
        "_start",
        "_start_lock",
        "accepted",
        "ending",
        "execution",
        "plan",
        "used_at",
    )

    def __init__(
        self,
        accepted: ExecutionRecord,
        plan: Plan,
        journal: Journal,
        blob: BlobStore,
        cache: Cache,
        *,
        max_decoded: int | None = None,
    ) -> None:
        """With `max_decoded`, reading values whose JSON is longer in total fails: decoded, they take up to thirty times
        as much memory."""
        self._max_decoded = max_decoded
        self._decoded = 0
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
        self._start_lock: asyncio.Lock | None = None
        self.execution = {"id": accepted.id, "workflow_id": accepted.workflow}

    @property
    def blobs(self) -> Blobs:
        if self._blobs is None:
            self._blobs = Blobs(self._blob, self.accepted.id, self.accepted.needs)
        return self._blobs

    @property
    def start(self) -> Any:
        """The start payload, decoded on first use; ABSENT if it is large and was not loaded."""
        found = self._start
        if found is ABSENT:
            stored = self.accepted.input
            if type(stored) is Inline and len(stored.data) <= MAX_DECODED_INLINE_BYTES:
                found = self._start = self.decode(stored.data)
        return found

    async def encoded_start(self) -> bytes:
        """Return the start payload as JSON, without decoding it."""
        stored = self.accepted.input
        if type(stored) is Inline:
            return stored.data
        assert type(stored) is Large
        data = await self._blob.get(stored.key)
        if data is None:
            raise KeyError(stored.key)
        return data

    async def load_start(self) -> Any:
        """Return the start payload. A large one is decoded off the event loop, once for all that wait for it."""
        if self._start_lock is None:
            self._start_lock = asyncio.Lock()
        async with self._start_lock:
            found = self.start
            if found is ABSENT:
                decode = partial(self.decode, await self.encoded_start())
                found = self._start = await off_loop_in_turn(decode)
            return found

    def decode(self, data: bytes) -> Any:
        """Decode a stored value."""
        if self._max_decoded is not None:
            self._decoded += len(data)
            if self._decoded > self._max_decoded:
                raise LimitExceededError(
                    "bytes of the values that are read", self._max_decoded, self._decoded
                )
        return decode_value(data)

    def reader(self) -> ValueReader:
        """Return a view of the values for one attempt."""
        return ValueReader(self)

    def cache_result(self, result: NodeResult) -> None:
        """Cache a recorded result: the next node usually reads it. Results of items are packed where possible."""
        value, path = result.value, result.path
        size = len(value.data) if type(value) is Inline else 64
        if path and self._cache.pack(self.accepted.id, self._pack_key(result.node, path), result, size):
            return
        key = (self.accepted.id, result.node, path)
        self._cache.put(self.accepted.id, key, result, size + RESULT_OBJECT_BYTES)

    def _pack_key(self, node: int, path: Path) -> Hashable:
        return (self.accepted.id, node, path[:-1], path[-1] // PACK_ITEMS, "items")

    def cache_decoded(self, result: NodeResult, value: Any, size: int) -> None:
        """Cache the decoded value of a result. It is shared between readers and must not be modified. A small value of
        an item has few readers: it is decoded again."""
        if result.path and size <= MAX_PACKED_BYTES:
            return
        self._put((self.accepted.id, result.node, result.path, "value"), value, size * 4)

    def cached_result(self, node: int, path: Path) -> NodeResult | None:
        found: NodeResult | None = None
        if path:
            found = self._cache.unpack(self._pack_key(node, path), path)
        return found or self._cache.get((self.accepted.id, node, path))

    def drop_items(self, split: int, path: Path) -> None:
        """Drop the packed results of the items around this one, whose aggregator has read them, and the decoded page of
        items before them. After a crash it reads them from the journal."""
        for node in self.plan.nodes[split].body:
            self._cache.drop(self._pack_key(node, path))
        items = self.cached_result(split, path[:-2])
        if items is not None and type(items.value) is Paged:
            # The page of the item itself may have items that are not read yet.
            page = _page_number(items.value.starts, path[-1]) - 1
            self._cache.drop((f"{items.value.key}/{page}", "page"))

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

    def item_page(self, key: str) -> list[Any] | None:
        found: list[Any] | None = self._cache.get((key, "page"))
        return found

    def cache_page(self, key: str, number: int, items: list[Any], size: int) -> None:
        """Cache the decoded items of a page. Items start in order: those of far earlier pages have read theirs."""
        self._put((f"{key}/{number}", "page"), items, size * 4)
        self._cache.drop((f"{key}/{number - KEPT_PAGES}", "page"))

    def _put(self, key: Hashable, value: Any, size: int) -> None:
        self._cache.put(self.accepted.id, key, value, size)

    def forget(self) -> None:
        """Drop the cached values once the execution has ended and its completion is published."""
        self._cache.drop_all(self.accepted.id)

    async def load(self, what: Missing, reader: ValueReader) -> None:
        """Load what a reader raised ValueNotLoaded for."""
        if isinstance(what, StartRef):
            reader.loaded_start = await self.load_start()
            return
        if isinstance(what, SignalRef):
            signal = await self._journal.signal(self.accepted.id, what.id)
            if signal is None:
                raise KeyError(what)
            reader.signals[what.id] = signal.value
            return
        if isinstance(what, str | PagesRef):
            blobs = [what] if isinstance(what, str) else [f"{what.key}/{each}" for each in what.numbers]
            for name, data in zip(blobs, await asyncio.gather(*map(self._blob.get, blobs)), strict=True):
                if data is None:
                    raise KeyError(name)
                reader.blobs[name] = data
            return
        missing = reader.missing(what)
        for at in range(0, len(missing), RESULTS_PER_TURN):
            if at:
                await asyncio.sleep(0)
            keys = missing[at : at + RESULTS_PER_TURN]
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

    def inline_output(
        self, value: Any, payload: Ref, entry: Any, limits: Limits = LIMITS
    ) -> Inline | Same | None:
        """Return how an output is stored without a blob; None if it is too large for that."""
        if value is entry and value is not None:
            return Same(payload)
        data = encode_value(value)
        return Inline(data) if len(data) <= limits.inline_bytes else None

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
        if not path:
            # The items are usually those of the start payload, which is decoded again if a node reads it.
            self._start = ABSENT
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
        self.loaded_start: Any = ABSENT
        self._ahead: dict[int, int] = {}  # by node: how many items the next miss loads
        self._pages_ahead = 1
        self._scope: ExpressionScope | None = None
        self._collected: tuple[Key, list[Any], set[int]] | None = None
        self._origins: dict[Ref, Ref] = {}
        self._joins: dict[Key, Joined] = {}
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

    def _missing_pages(self, stored: Paged, number: int) -> PagesRef:
        """Return the pages to load for a miss. Each miss doubles their number: an aggregator reads all of them."""
        count = self._pages_ahead
        self._pages_ahead = min(2 * count, MAX_PREFETCHED_PAGES)
        return PagesRef(stored.key, range(number, min(number + count, len(stored.starts))))

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

    def entries(self, token: Token) -> Iterator[tuple[bool, Any]]:
        """Yield the entry of each item at an aggregator. The entries before a value that is not loaded are kept, so
        that the next call goes on there; what only they needed is dropped."""
        if self._collected is None or self._collected[0] != token.key:
            self._collected = (token.key, [], set())
        _, values, failed = self._collected
        for item, value in enumerate(values):
            yield item in failed, value
        node = self._plan.nodes[token.node]
        sources = {self._plan.src[edge] for edge in node.in_edges}
        found: dict[Key, NodeResult] = {}  # of the item: it is looked up once

        def look_up(index: int, path: Path) -> NodeResult | None:
            result = self.result(index, path)
            if result is not None:
                found[(index, path)] = result
            return result

        for item in range(len(values), token.items):
            found.clear()
            entry = item_entry(self._plan, node, token.path, item, look_up)
            if entry.error is not None:
                value = self.value(entry.error)
                failed.add(item)
            elif len(entry.payloads) > 1:
                value = {
                    self._plan.ids[source]: self._read_once(ref, found) for source, ref in entry.payloads
                }
            else:
                value = self._read_once(entry.payloads[0][1], found) if entry.payloads else None
            values.append(value)
            if item % PACK_ITEMS == PACK_ITEMS - 1:
                self._data.drop_items(node.split_of, (*token.path, node.split_of, item))
            for source in sources:
                self.fetched.pop((source, (*token.path, node.split_of, item)), None)
            yield entry.error is not None, value
        self._collected = None  # the caller has its own list by now, and the node does not start over

    def _read_once(self, ref: Ref, found: dict[Key, NodeResult]) -> Any:
        """Return a value that is not read again. Cached, a million of them would displace what others read."""
        if ref.kind == "result" and (ref.node, ref.path) not in self.values:
            result = found.get((ref.node, ref.path)) or self.result(ref.node, ref.path)
            if result is not None and result.status == "ok" and type(result.value) is Inline:
                return self._data.decode(result.value.data)
        return self.value(ref)

    @property
    def start(self) -> Any:
        found = self.loaded_start if self.loaded_start is not ABSENT else self._data.start
        if found is ABSENT:
            raise ValueNotLoaded(StartRef())
        return found

    def size(self, origin: Ref) -> int:
        """Return how long the value of an origin other than a join is when it is written out."""
        if origin.kind == "start":
            return input_size(self._data.accepted)
        result = self.result(origin.node, origin.path) if origin.kind == "result" else None
        stored = None if result is None else result.value
        if type(stored) is Inline:
            return len(stored.data)
        return stored.size if type(stored) is Large else len(encode_value(self.value(origin)))

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
            found = self._data.decode(data)
            self._data.cache_decoded(result, found, len(data))
        self.values[key] = found
        return found

    def encoded(self, result: NodeResult) -> bytes:
        """Return the output of a result as JSON, without decoding a value that is stored as such."""
        stored = result.value
        if type(stored) is not Same:
            return stored.data if type(stored) is Inline else self._bytes(stored)
        return self.encoded_value(self.origin(stored.ref))

    def encoded_value(self, origin: Ref) -> bytes:
        """Return the value of an origin as JSON."""
        if origin.kind == "start":
            start = self._data.accepted.input
            return start.data if type(start) is Inline else self._bytes(start)
        result = self.result(origin.node, origin.path) if origin.kind == "result" else None
        if result is not None and result.status == "ok":
            return self.encoded(result)
        return encode_value(self.value(origin))

    def digest(self, origin: Ref, known: dict[Ref, bytes]) -> bytes:
        """Return a digest of the value of an origin; that of a join follows from the digests of its members. `known`
        has those that were computed before."""
        found = known.get(origin)
        if found is None:
            digest = hashlib.sha256()
            if origin.kind == "entered":
                for name, inner in self.joined(origin).origins.items():
                    digest.update(encode_value(name) + self.digest(inner, known))
            else:
                digest.update(self.encoded_value(origin))
            found = known[origin] = digest.digest()
        return found

    def written(self, ref: Ref, token: Token | None = None) -> tuple[Ref, int]:
        """Return where a value comes from, behind the nodes that passed it on, and its length when it is written
        out. Nothing is decoded for it."""
        origin = self.origin(ref)
        if origin.kind == "entered":
            return origin, self.joined(origin, token).size
        return origin, self.size(origin)

    def shown(self, ref: Ref) -> tuple[Ref, int]:
        """Return which output a reference to this output names, and its length: that of the node that it comes from,
        or, if it comes from a payload or an error that is no node's output, this one."""
        origin, size = self.written(ref)
        if origin.kind == "result":
            result = self.result(origin.node, origin.path)
            return (origin if result is not None and result.status == "ok" else ref), size
        return (origin if origin.kind == "start" else ref), size

    def blob_key(self, result: NodeResult) -> str | None:
        """Return the key of the blob that holds the output of a result; None if no single blob does."""
        stored = result.value
        if type(stored) is Same:
            ref = self.origin(stored.ref)
            if ref.kind == "start":
                start = self._data.accepted.input
                return start.key if type(start) is Large else None
            source = self.result(ref.node, ref.path) if ref.kind == "result" else None
            stored = source.value if source is not None and source.status == "ok" else None
        return stored.key if type(stored) is Large else None

    def signal(self, id: str) -> Any:
        if id not in self.signals:
            raise ValueNotLoaded(SignalRef(id))
        stored = self.signals[id]
        if stored is None:
            return None
        return self._data.decode(stored.data if type(stored) is Inline else self._bytes(stored))

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
            data = self.blobs.get(key)
            if data is None:
                raise ValueNotLoaded(self._missing_pages(stored, number))
            items = self._data.decode(data)
            self._data.cache_page(stored.key, number, items, len(data))
        return items[index - stored.starts[number]]


def input_size(accepted: ExecutionRecord) -> int:
    """Return how long the start payload of an execution is."""
    stored = accepted.input
    return len(stored.data) if type(stored) is Inline else stored.size if type(stored) is Large else 0


def input_digest(stored: StoredValue) -> str:
    """Return a digest of a start payload. The key of a blob ends with it."""
    if type(stored) is Inline:
        return hashlib.sha256(stored.data).hexdigest()
    assert type(stored) is Large
    return stored.key.rpartition("/")[2]


def same_input(one: StoredValue, other: StoredValue) -> bool:
    """Return whether two start payloads are the same."""
    return one == other or input_digest(one) == input_digest(other)


async def store_start(
    blob: BlobStore, execution: str, data: bytes, limits: Limits = LIMITS
) -> Inline | Large:
    """Return how to store a start payload: in its record if it is small, else as a blob. The key ends with a digest of
    the bytes, so that a second start with the same id, but another payload, does not change the first."""
    if len(data) <= limits.inline_bytes:
        return Inline(data)
    if len(data) > limits.payload_bytes:
        raise LimitExceededError("bytes of a start payload", limits.payload_bytes, len(data))
    digest = await off_loop(lambda: input_digest(Inline(data)))
    return await store_value(blob, f"{execution}/start/{digest}", data, limits)


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
    size = first = total = 0
    for index, item in enumerate(items):
        check_json(item, limits)
        data = encode_value(item)
        total += len(data)
        if total > limits.output_bytes:
            raise LimitExceededError("bytes of the items", limits.output_bytes)
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


class CacheEntry(msgspec.Struct):
    """A cached value, its approximate bytes, and the execution it belongs to."""

    value: Any
    size: int
    owner: str


class Cache:
    """A cache bounded by bytes that evicts the least recently used entry first. Every entry has an owner, whose entries
    can be dropped together. Evaluations in threads use it too."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self.size = 0
        """The size of all entries."""
        self._entries: OrderedDict[Hashable, CacheEntry] = OrderedDict()
        self._keys: dict[str, set[Hashable]] = {}

    def get(self, key: Hashable) -> Any:
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found.value

    def put(self, owner: str, key: Hashable, value: Any, size: int) -> None:
        """Cache a value of about this many bytes, unless it is larger than the whole cache."""
        size += CACHE_ENTRY_BYTES
        with self._lock:
            if key in self._entries:
                self._drop(key)
            if size <= self._limit:
                self._add(owner, key, CacheEntry(value, size, owner))

    def pack(self, owner: str, key: Hashable, result: NodeResult, size: int) -> bool:
        """Add the result of an item, with a value of this many bytes, to the pack under this key. Return False if it
        cannot be packed."""
        with self._lock:
            entry = self._entries.get(key)
            pack = PackedResults() if entry is None else entry.value
            count = len(pack)
            if not pack.add(result):
                return False
            if entry is None:
                self._add(owner, key, CacheEntry(pack, CACHE_ENTRY_BYTES + RESULT_BYTES + size, owner))
            elif len(pack) > count:
                entry.size += RESULT_BYTES + size
                self.size += RESULT_BYTES + size
                self._evict()
            return True

    def unpack(self, key: Hashable, path: Path) -> NodeResult | None:
        """Return the result of an item from the pack under this key."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            pack: PackedResults = entry.value
            return pack.get(path)

    def _add(self, owner: str, key: Hashable, entry: CacheEntry) -> None:
        self._entries[key] = entry
        keys = self._keys.get(owner)
        if keys is None:
            self._keys[owner] = {key}
        else:
            keys.add(key)
        self.size += entry.size
        if self.size > self._limit:
            self._evict()

    def _evict(self) -> None:
        while self.size > self._limit:
            self._drop(next(iter(self._entries)))

    def drop(self, key: Hashable) -> None:
        """Drop an entry, if it is cached."""
        with self._lock:
            if key in self._entries:
                self._drop(key)

    def drop_all(self, owner: str) -> None:
        """Drop the entries of an owner."""
        with self._lock:
            for key in self._keys.pop(owner, ()):
                self.size -= self._entries.pop(key).size

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key)
        self.size -= entry.size
        keys = self._keys[entry.owner]
        keys.remove(key)
        if not keys:
            del self._keys[entry.owner]
