"""Reads the values of an execution for one attempt. Nothing is decoded or loaded before an expression needs it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rune.codec.facts import (
    PACK_ITEMS,
    encode_value,
)
from rune.core.execution.fact import NodeResult
from rune.core.execution.joins import item_entry
from rune.core.execution.scope import ExpressionScope, Joined, ValueSource
from rune.core.execution.stored_value import Inline, Large, Paged, Same, StoredValue
from rune.core.execution.token import Path, Ref, Token
from rune.runtime.stored_values import input_size, page_number
from rune.runtime.value_refs import ABSENT, Key, PagesRef, SignalRef, StartRef, ValueNotLoaded

if TYPE_CHECKING:
    from rune.runtime.execution_data import ExecutionData

MAX_PREFETCHED = 4_096
MAX_PREFETCHED_PAGES = 32


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
        number = page_number(stored.starts, index)
        key = f"{stored.key}/{number}"
        items = self._data.item_page(key)
        if items is None:
            data = self.blobs.get(key)
            if data is None:
                raise ValueNotLoaded(self._missing_pages(stored, number))
            items = self._data.decode(data)
            self._data.cache_page(stored.key, number, items, len(data))
        return items[index - stored.starts[number]]
