"""The plan, the record and the values of an execution, loaded when an expression reads them.

An output that equals the node's input is stored as a reference.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from functools import partial
from typing import Any

import msgspec

from rune.codec.facts import (
    MAX_PACKED_BYTES,
    PACK_ITEMS,
    decode_value,
    encode_value,
)
from rune.core.execution.fact import ExecutionEnded, NodeResult, TokenFact
from rune.core.execution.stored_value import Inline, Large, Paged, Same, StoredValue
from rune.core.execution.token import Path, Ref, token_name
from rune.core.limits import LIMITS, Limits
from rune.core.plan.model import Plan
from rune.errors import LimitExceededError, RuneError
from rune.nodes.blobs import Blobs
from rune.off_loop import off_loop_in_turn
from rune.ports.clock import Clock
from rune.ports.journal import BlobStore, ExecutionRecord, Journal, StoredFact
from rune.runtime.plan_cache import PlanCache
from rune.runtime.stored_values import input_size, page_number, pages, store_value
from rune.runtime.value_cache import CACHE_BYTES, Cache
from rune.runtime.value_reader import ValueReader
from rune.runtime.value_refs import ABSENT, Missing, PagesRef, SignalRef, StartRef

RESULT_OBJECT_BYTES = 300  # of a result that is not packed, besides its value
MAX_CACHED_EXECUTIONS = 10_000
MAX_CACHED_INPUT_BYTES = 64 * 1024 * 1024
IDLE_S = 30.0
"""An execution that was not used for this long is dropped from the cache; its record is read again if it goes on."""

MAX_DECODED_INLINE_BYTES = 256 * 1024
"""A larger start payload is decoded in a thread."""
PAGES_PER_TURN = 64
RESULTS_PER_TURN = 2_000
KEPT_PAGES = 48
"""Decoded pages of a fan-out: the largest window of items (`max_in_flight`) has 40."""


class ExecutionNotFoundError(RuneError):
    """No execution is stored under this id."""

    code = "UNKNOWN_EXECUTION"


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

    async def facts(self, execution: str, limit: int | None = None) -> list[StoredFact]:
        """Return the facts of an execution, in commit order; at most `limit`."""
        return await self._journal.facts(execution, limit=limit)

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
            page = page_number(items.value.starts, path[-1]) - 1
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
        for first, data in pages(items, limits):
            writes.append(self._blob.put(f"{key}/{len(starts)}", data))
            starts.append(first)
            if len(starts) % PAGES_PER_TURN == 0:
                await asyncio.sleep(0)
        await asyncio.gather(*writes)
        if not path:
            # The items are usually those of the start payload, which is decoded again if a node reads it.
            self._start = ABSENT
        return Paged(key, len(items), tuple(starts))
