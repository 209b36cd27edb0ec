"""Resolve references to values, and provide the scope of a token's expressions.

Results come from a lookup function, so that the same code serves an in-memory journal and one loaded in batches.

Values are shared: the payload of a join is an object whose members are the payloads that arrived, not copies of them,
and it is built once. Written out it may be much larger than what exists, twice as large with each join of two branches,
so that its size is computed from the sizes of its members and is limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from rune.core.execution.fact import NodeResult
from rune.core.execution.joins import Lookup, item_entry
from rune.core.execution.stored_value import Same
from rune.core.execution.token import START, Arrived, Path, Ref, Token, path_text
from rune.core.expr.budget import METER
from rune.core.expr.values import to_json
from rune.core.limits import LIMITS, Limits
from rune.core.plan.model import Plan
from rune.errors import LimitExceededError

Decode = Callable[[Any], Any]


def failure_value(result: NodeResult) -> dict[str, Any]:
    """Return the output of a failed node."""
    failure = result.failure
    if failure is None:
        return {"error": {}}
    return {"error": {"code": failure.code, "message": failure.message, "details": failure.details}}


class Joined(msgspec.Struct, eq=False):
    """The payload of a join: where each of the payloads that arrived comes from, by predecessor, and the joins among
    them. `size` is its length when written out, `nesting` how many joins are inside of each other in it. `value` is the
    object once it was read: nothing is decoded in order to know how large it is."""

    arrived: tuple[Arrived, ...]
    origins: dict[str, Ref]
    joins: dict[str, Joined]
    size: int
    nesting: int
    value: dict[str, Any] | None = None


class ValueSource:
    """The values of one execution."""

    limits: Limits = LIMITS

    def __init__(
        self, plan: Plan, start: Any, results: Lookup, execution: dict[str, Any], decode: Decode
    ) -> None:
        self._plan = plan
        self._start = start
        self._lookup = results
        self._decode = decode
        self.execution = execution
        self._origins: dict[Ref, Ref] = {}
        self._joins: dict[tuple[int, Path], Joined] = {}

    @property
    def start(self) -> Any:
        """The start payload."""
        return self._start

    def result(self, node: int, path: Path) -> NodeResult | None:
        return self._lookup(node, path)

    def value(self, ref: Ref, token: Token | None = None) -> Any:
        """Return the value of a reference; raise KeyError if it has none, and LimitExceededError if it is the payload
        of a join and larger than the limit."""
        ref = self.origin(ref)
        if ref.kind == "start":
            return self.start
        if ref.kind == "item":
            return self._item_value(ref)
        if ref.kind == "entered":
            return self._built(self.joined(ref, token))
        result = self._ended(ref)
        return self.output(result) if result.status == "ok" else failure_value(result)

    def _ended(self, ref: Ref) -> NodeResult:
        result = self.result(ref.node, ref.path)
        if result is None or result.status not in ("ok", "failed"):
            raise KeyError(ref)
        return result

    def origin(self, ref: Ref) -> Ref:
        """Return where the value of a reference comes from, behind the nodes that passed it on."""
        cached = self._origins.get(ref)
        if cached is not None:
            return cached
        first, passed = ref, 0
        while ref.kind == "result":
            result = self.result(ref.node, ref.path)
            if result is None or result.status != "ok" or type(result.value) is not Same:
                break
            ref, passed = result.value.ref, passed + 1
            cached = self._origins.get(ref)
            if cached is not None:
                ref = cached
                break
        if passed:
            self._origins[first] = ref
        return ref

    def joined(self, ref: Ref, token: Token | None = None) -> Joined:
        """Return the payload of a join. The joins in it are built first: a chain of them is longer than a stack."""
        own = token is not None and (ref.node, ref.path) == (token.node, token.path)
        key = (ref.node, ref.path)
        arrived = token.arrived if own and token is not None else self._ended(ref).arrived
        pending = [(key, arrived)]
        while pending:
            key, arrived = pending[-1]
            if self._known(key, arrived) is None:
                inner = self._unknown_joins(arrived)
                if inner:
                    pending += inner
                    continue
                self._joins[key] = self._join(arrived)
            pending.pop()
        return self._joins[key]

    def _known(self, key: tuple[int, Path], arrived: tuple[Arrived, ...]) -> Joined | None:
        cached = self._joins.get(key)
        return cached if cached is not None and cached.arrived == arrived else None

    def _unknown_joins(
        self, arrived: tuple[Arrived, ...]
    ) -> list[tuple[tuple[int, Path], tuple[Arrived, ...]]]:
        unknown = []
        for arrival in arrived:
            origin = self.origin(arrival.payload)
            if origin.kind == "entered":
                key, inner = (origin.node, origin.path), self._ended(origin).arrived
                if self._known(key, inner) is None:
                    unknown.append((key, inner))
        return unknown

    def _built(self, joined: Joined) -> dict[str, Any]:
        """Return the object of a join, in which the same payloads are the same objects."""
        pending = [joined]
        while pending:
            each = pending[-1]
            if each.value is None:
                inner = [member for member in each.joins.values() if member.value is None]
                if inner:
                    pending += inner
                    continue
                each.value = {
                    name: each.joins[name].value if name in each.joins else self.value(origin)
                    for name, origin in each.origins.items()
                }
            pending.pop()
        assert joined.value is not None
        return joined.value

    def _join(self, arrived: tuple[Arrived, ...]) -> Joined:
        origins = {self._plan.ids[self._plan.src[each.edge]]: self.origin(each.payload) for each in arrived}
        joins = {
            name: self._joins[(origin.node, origin.path)]
            for name, origin in origins.items()
            if origin.kind == "entered"
        }
        size, nesting = len("{}") - len(","), 1
        for name, origin in origins.items():
            inner = joins.get(name)
            size += len(name) + len('"":,')
            size += self.size(origin) if inner is None else inner.size
            nesting = max(nesting, 1 if inner is None else inner.nesting + 1)
        if size > self.limits.output_bytes:
            raise LimitExceededError("bytes of the payload", self.limits.output_bytes, size)
        if nesting > self.limits.json_depth:
            raise LimitExceededError("nesting of the payload", self.limits.json_depth, nesting)
        return Joined(arrived, origins, joins, size, nesting)

    def size(self, origin: Ref) -> int:
        """Return how long the value of an origin other than a join is when it is written out."""
        return len(to_json(self.value(origin)))

    def _item_value(self, ref: Ref) -> Any:
        result = self.result(ref.node, ref.path[:-2])
        if result is None:
            raise KeyError(ref)
        return self.item(result, ref.path[-1])

    def output(self, result: NodeResult) -> Any:
        return self._decode(result.value)

    def item(self, result: NodeResult, index: int) -> Any:
        return self._decode(result.value)[index]

    def arrivals(self, token: Token) -> list[tuple[str, Any]]:
        """Return the live payloads at a join by predecessor id, in edge order."""
        return list(self._arrived_values(token.arrived))

    def _arrived_values(self, arrived: tuple[Arrived, ...]) -> Iterator[tuple[str, Any]]:
        for arrival in arrived:
            yield self._plan.ids[self._plan.src[arrival.edge]], self.value(arrival.payload)

    def entries(self, token: Token) -> Iterator[tuple[bool, Any]]:
        """Yield the entry of each item at an aggregator: whether it failed, and its value."""
        node = self._plan.nodes[token.node]
        for item in range(token.items):
            entry = item_entry(self._plan, node, token.path, item, self.result)
            if entry.error is not None:
                yield True, self.value(entry.error)
            elif len(entry.payloads) > 1:
                yield False, {self._plan.ids[source]: self.value(ref) for source, ref in entry.payloads}
            else:
                yield False, self.value(entry.payloads[0][1]) if entry.payloads else None

    def scope(self, token: Token, now: float, seed: str) -> ExpressionScope:
        return ExpressionScope(self, self._plan, token, now, seed)


class ExpressionScope(dict[str, Any]):
    """The roots of one token's expressions, each loaded on first access."""

    __slots__ = ("_now", "_plan", "_seed", "_token", "_values", "_visibility_known", "_visible_nodes")

    def __init__(self, values: ValueSource, plan: Plan, token: Token, now: float, seed: str) -> None:
        self._values = values
        self._plan = plan
        self._token = token
        self._now = now
        self._seed = seed
        self._visible_nodes: frozenset[int] | None = None
        self._visibility_known = False

    def __missing__(self, root: str) -> Any:
        value = self._find(root)
        self[root] = value
        return value

    def _find(self, root: str) -> Any:
        token = self._token
        if root == "$json":
            return self._values.value(token.payload, token)
        if root == "@now":
            return self._now
        if root == "@seed":
            return f"{self._values.execution['id']}/{self._seed}"
        if root == "@path":
            return path_text(token.path, self._plan.ids)
        if root == METER:
            raise KeyError(root)
        if root == "$index" and token.path:
            return token.path[-1]
        if root == "$execution":
            return self._values.execution
        ref = reference(self._plan, token, root)
        if ref is None or not self._is_visible(root):
            raise KeyError(root)
        value = self._values.value(ref, token)
        return value["error"] if root == "$error" else value

    def _is_visible(self, root: str) -> bool:
        index = self._plan.index.get(root[1:])
        if index is None or root in ("$json", "$item", "$error", "$trigger", "$input"):
            return True
        if not self._visibility_known:
            self._visible_nodes = visible(self._plan, self._token, self._values.result)
            self._visibility_known = True
        return self._visible_nodes is None or index in self._visible_nodes


def reference(plan: Plan, token: Token, root: str) -> Ref | None:
    """Return the reference that a root denotes for this token; None if it is not a stored value."""
    if root in ("$trigger", "$input"):
        return START
    if root == "$json":
        return token.payload
    if root == "$error":
        return token.error
    if root == "$item":
        return Ref("item", token.path[-2], token.path) if token.path else None
    index = plan.index.get(root[1:])
    return None if index is None else result_ref(plan, index, token.path)


def result_ref(plan: Plan, node: int, path: Path) -> Ref:
    """Return the reference to the output of a node in this scope, or in the enclosing scope that holds the node."""
    if node in plan.triggers:
        return START
    return Ref("result", node, path[: 2 * plan.nodes[node].depth])


def visible(plan: Plan, token: Token, results: Lookup) -> frozenset[int] | None:
    """Return the nodes whose output this token may see; None if no race is upstream and all ancestors are visible.

    After a race only the ancestors of the edges that opened it are visible, whatever the losers do later.
    """
    if not plan.nodes[token.node].raced:
        return None
    seen: set[int] = set()
    pending = [plan.src[edge] for edge in _live_routes(plan, token.node, token, results)]
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if plan.nodes[node].joins_items:
            pending.append(plan.nodes[node].split_of)
        else:
            pending += [plan.src[edge] for edge in _live_routes(plan, node, token, results)]
    return frozenset(seen)


def _live_routes(plan: Plan, index: int, token: Token, results: Lookup) -> tuple[int, ...]:
    node = plan.nodes[index]
    if not node.is_join or (node.opens == "all" and (node.timeout is None or index == token.node)):
        return node.in_edges
    if index == token.node:
        return tuple(arrival.edge for arrival in token.arrived)
    result = results(index, token.path[: 2 * node.depth])
    if result is None or result.status == "skipped" or (node.opens == "all" and not _has_expired(result)):
        return node.in_edges
    return tuple(arrival.edge for arrival in result.arrived)


def _has_expired(result: NodeResult) -> bool:
    return result.failure is not None and bool(result.failure.details.get("expired"))
