"""Mocks of nodes: what a node returns, how it fails and how long it takes, instead of running.

    mocks.node("quote").fails("HTTP_TIMEOUT", times=2).returns({"status": 200, "body": {"price": 7}})
    mocks.type("smtp").returns({"sent": True})
    assert mocks.node("quote").calls[0].parameters["url"] == "https://shop.example/a-7"

The parameters of a mocked node are resolved and checked as always.

`context` makes a node context without an engine, for tests of custom nodes:

    ctx = context(payload={"n": 1})
    assert await score(ctx, "c7") == {"score": 2}
    assert ctx.reported == ["half"]
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from datetime import timedelta
from functools import wraps
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import msgspec

from rune.core.execution.outcome import Error, Failure, FanOut, Outcome, Output, Suspend
from rune.core.node_type import NodeType
from rune.core.plan.model import NodePlan, Plan
from rune.nodes.base import NodeCall, RunnableType
from rune.nodes.blobs import Blobs
from rune.nodes.custom import NodeContext
from rune.nodes.registry import Registry, has_outside_effects


class MemoryBlob:
    """An in-memory blob store."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def put(self, key: str, data: bytes) -> None:
        self.kept[key] = bytes(data)

    async def get(self, key: str) -> bytes | None:
        return self.kept.get(key)

    async def delete(self, execution: str) -> int:
        """Delete the blobs of an execution and return how many there were."""
        keys = [key for key in self.kept if key.partition("/")[0] == execution]
        for key in keys:
            del self.kept[key]
        return len(keys)


class Context(NodeContext):
    """A context that records progress in `reported`, in order."""

    def __init__(self, call: NodeCall[Any], loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__(call, loop)
        self.reported: list[float | str] = []
        call.progress = self.reported.append


def context(
    payload: Any = None,
    *,
    node: str = "node",
    attempt: int = 1,
    now: int = 0,
    idempotency_key: str = "test:node@/",
    loop: asyncio.AbstractEventLoop | None = None,
) -> Context:
    """Return a context for one call of a decorated function. With `loop`, functions in other threads may `wait`."""
    call: NodeCall[Any] = NodeCall(
        None,
        {"$json": payload},
        now=now,
        node=node,
        attempt=attempt,
        idempotency_key=idempotency_key,
        blobs=Blobs(MemoryBlob(), "test"),
    )
    return Context(call, loop)


Sleep = Callable[[str, int], Awaitable[bool]]
"""Wait for virtual milliseconds in a node; return whether its timeout came first."""

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(?<!\d)(\d++(?:\.\d++)?+)(ms|s|m|h|d)")


class UnmockedNodeError(AssertionError):
    """A node with effects ran without a mock."""


class UnknownItemError(AssertionError):
    """A mock is for an item that no execution of the test had."""


def milliseconds(duration: str | float | timedelta) -> int:
    """Return a duration such as `3d`, `1h30m` or `250ms` in milliseconds; a number is in seconds."""
    if isinstance(duration, timedelta):
        return round(duration.total_seconds() * 1000)
    if isinstance(duration, int | float):
        return round(duration * 1000)
    parts = _DURATION.findall(duration)
    if not parts or "".join(number + unit for number, unit in parts) != duration:
        raise ValueError(
            f"`{duration}` is not a duration; write `30s`, `5m`, `1h30m`, `3d` or seconds as a number"
        )
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in parts))


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a mocked node. `item` names the item, outermost split first (`users:5/orders:2`), empty outside of
    splits; `index` is its position in the innermost split. `execution` is the execution, which may be a child."""

    node: str
    parameters: dict[str, Any]
    attempt: int
    idempotency_key: str
    index: int | None = None
    item: str = ""
    execution: str = ""


@dataclasses.dataclass
class _Answer:
    outcome: Any
    times: int | None


class Mock:
    """What a node does instead of running. Answers are given in order; the last one stays."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[Call] = []
        self._answers: list[_Answer] = []
        self._given: dict[tuple[str, str, str, int], _Answer] = {}
        self._takes_ms = 0
        self._items: dict[int | str, Mock] = {}
        self._taken: set[int | str] = set()
        self._real = False

    def returns(self, value: Any = None, *, times: int | None = None) -> Mock:
        """Return a value, or what a function returns for the call."""
        self._answers.append(_Answer(value if callable(value) else Output(value), times))
        return self

    def fails(
        self, code: str, message: str = "", *, times: int | None = None, permanent: bool | None = None
    ) -> Mock:
        """Fail with an error code, always or for some calls."""
        error = Error(code, message or f"mocked failure of `{self.name}`", permanent=permanent)
        self._answers.append(_Answer(Failure(error), times))
        return self

    def takes(self, duration: str | float | timedelta) -> Mock:
        """Take this long in virtual time."""
        self._takes_ms = milliseconds(duration)
        return self

    def runs(self) -> Mock:
        """Run the node as it is, and record its calls."""
        self._real = True
        return self

    def item(self, item: int | str) -> Mock:
        """Return the mock for one item: its position in the innermost split, or all splits as in `users:5/orders:2`."""
        return self._items.setdefault(item, Mock(f"{self.name}, item {item}"))

    @property
    def distinct_keys(self) -> int:
        """How many different idempotency keys the calls had."""
        return len({each.idempotency_key for each in self.calls})

    @property
    def is_set(self) -> bool:
        return bool(self._answers or self._real or self._takes_ms)

    def chosen(self, item: str) -> Mock:
        """Return the mock of an item such as `users:5/orders:2` if there is one, else this one."""
        if not item:
            return self
        for key in (item, _index(item)):
            if key in self._items:
                self._taken.add(key)
                return self._items[key]
        return self

    @property
    def untaken(self) -> list[int | str]:
        """The items that have a mock and did not run."""
        return [each for each in self._items if each not in self._taken]

    def answer(self, call: Call) -> Any:
        """Return the outcome of a call."""
        current = self.take(call)
        if callable(current.outcome):
            made = current.outcome(call)
            return made if isinstance(made, Output | Failure) else Output(made)
        return current.outcome

    def take(self, call: Call) -> _Answer:
        """Return the next answer; the same one for an attempt that is called again, as after a crash."""
        attempt = (call.execution, call.node, call.item, call.attempt)
        if attempt not in self._given:
            self._given[attempt] = self._next()
        return self._given[attempt]

    def _next(self) -> _Answer:
        if not self._answers:
            return _Answer(Output(None), None)
        current = self._answers[0]
        if current.times is not None:
            current.times -= 1
            if current.times <= 0:
                self._answers.pop(0)
        return current


class Mocks:
    """The mocks of one test, by node id and by type. A node with effects that has none fails the test."""

    def __init__(self) -> None:
        self._nodes: dict[str, Mock] = {}
        self._types: dict[str, Mock] = {}
        self._strict = True
        self._log: Path | None = None
        self._counts: dict[str, dict[str, int]] = {}  # the most items of a split, by the item around it
        self.unmocked: list[str] = []

    def node(self, id: str) -> Mock:
        """Return the mock of a node."""
        return self._nodes.setdefault(id, Mock(id))

    def type(self, name: str) -> Mock:
        """Return the mock of all nodes of a type that have no mock of their own."""
        return self._types.setdefault(name, Mock(name))

    def strict(self, enabled: bool = True) -> None:
        """Whether a node with effects must have a mock; the default is yes."""
        self._strict = enabled

    def reset(self) -> None:
        """Forget all mocks and calls."""
        self._nodes.clear()
        self._types.clear()
        self.unmocked.clear()
        self._counts.clear()
        self._strict = True

    def fanned_out(self, split: str, item: str, count: int) -> None:
        """Note how many items a split made, inside of an item of the splits around it."""
        counts = self._counts.setdefault(split, {})
        counts[item] = max(count, counts.get(item, 0))

    def check_items(self, plans: Iterable[Plan], ignored: Collection[str] = ()) -> None:
        """Raise UnknownItemError if a mock, other than those of `ignored` names, is for an item that its node cannot
        have, or did not have in any execution. Items of a split that did not run are unknown."""
        nodes = [(plan, each) for plan in plans for each in plan.nodes]
        problems = []
        for mocks, names in ((self._nodes, _id_of), (self._types, _type_names)):
            for name, mock in mocks.items():
                found = [(plan, each) for plan, each in nodes if name in names(each)]
                for item in () if name in ignored else mock.untaken:
                    reasons = [self._why_not(plan, each, item) for plan, each in found]
                    if reasons and all(reasons):
                        problems.append(f"the mock of `{name}` for item {item!r} has no effect: {reasons[0]}")
        if problems:
            raise UnknownItemError("\n".join(problems))

    def _why_not(self, plan: Plan, node: NodePlan, item: int | str) -> str:
        """Return why a node has no such item; empty if it may have one."""
        around = _splits_around(plan, node)
        if not around:
            return f"`{node.id}` is in no split"
        if isinstance(item, int):
            counts = self._counts.get(around[-1], {}).values()
            return _beyond(around[-1], max(counts)) if counts and not 0 <= item < max(counts) else ""
        parts = [each.rpartition(":") for each in item.split("/")]
        if [split for split, _, _ in parts] != around or not all(_is_index(index) for _, _, index in parts):
            named = "/".join(f"{split}:0" for split in around)
            return f"items of `{node.id}` are named as in `{named}`, or by their position"
        outer = ""
        for split, _, index in parts:
            count = self._counts.get(split, {}).get(outer)
            if count is None:
                return ""
            if int(index) >= count:
                return _beyond(split, count)
            outer = f"{outer}/{split}:{index}".strip("/")
        return ""

    def check(self) -> None:
        """Raise UnmockedNodeError if a node with effects ran without a mock."""
        if self.unmocked:
            first = self.unmocked[0]
            raise UnmockedNodeError(
                f"`{first}` has effects and no mock: write mocks.node({first!r}).returns(…), or .runs() to run it"
            )

    def record_to(self, log: Path) -> None:
        """Append each call to a file as well, so that another process can read them."""
        self._log = log

    def replay(self, log: Path) -> None:
        """Add the calls that a file recorded."""
        for kind, call in _recorded(log):
            self.node(call.node).calls.append(call)
            if kind in self._types:
                self._types[kind].calls.append(call)

    def find(self, kind: RunnableType, node: str, item: str) -> Mock | None:
        """Return the mock for a run of a node."""
        names = (kind.type.name, *kind.type.aliases)
        candidates = (self._nodes.get(node), *(self._types.get(name) for name in names))
        for each in candidates:
            if each is not None and each.chosen(item).is_set:
                return each.chosen(item)
        return None

    def note(self, kind: RunnableType, call: Call, mock: Mock) -> None:
        """Record a call."""
        recorders = {id(mock): mock, id(own := self.node(call.node)): own}
        for each in recorders.values():
            each.calls.append(call)
        if self._log is not None:
            effect = has_outside_effects(kind, call.parameters)
            fields = {"type": kind.type.name, "effect": effect, **dataclasses.asdict(call)}
            line = json.dumps(fields, default=str)
            descriptor = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, f"{line}\n".encode())
            finally:
                os.close(descriptor)

    def needs_mock(self, kind: RunnableType, call: NodeCall[Any]) -> bool:
        """Whether a node without a mock must not run: it has effects outside of the engine."""
        return self._strict and has_outside_effects(kind, msgspec.to_builtins(call.parameters))


class MockingRegistry(Registry):
    """Node types whose nodes are mocked where a mock is set. Types can be added while the engine runs."""

    def __init__(self, mocks: Mocks, sleep: Sleep) -> None:
        self._kinds = {}
        self._by_name: dict[str, NodeType] = {}
        self.catalogue = self._by_name
        self._mocks = mocks
        self._sleep = sleep

    def include(self, kinds: Iterable[RunnableType]) -> None:
        """Add the types that are not known yet."""
        for kind in kinds:
            if kind.type.name not in self._kinds:
                self._kinds[kind.type.name] = self._mocked(kind)
                for name in (kind.type.name, *kind.type.aliases):
                    self._by_name[name] = kind.type

    def resume(self, log: Path) -> None:
        """Take the answers that the calls of a file received, so that mocks go on where another process ended."""
        for name, call in _recorded(log):
            mock = self._mocks.find(self._kinds[name], call.node, call.item)
            if mock is not None and not mock._real:
                mock.take(call)

    def _mocked(self, kind: RunnableType) -> RunnableType:
        behaviour: Any = kind.run

        def begin(call: NodeCall[Any]) -> tuple[Mock | None, Call, Outcome | None]:
            item = call.scope["@path"].strip("/")
            mock = self._mocks.find(kind, call.node, item)
            made = Call(
                call.node,
                msgspec.to_builtins(call.parameters),
                call.attempt,
                call.idempotency_key,
                _index(item) if item else None,
                item,
                call.scope["$execution"]["id"],
            )
            if mock is None and self._mocks.needs_mock(kind, call):
                self._mocks.unmocked.append(call.node)
                return None, made, Failure(Error("NOT_MOCKED", f"`{call.node}` has effects and no mock"))
            return mock, made, None

        @wraps(behaviour)
        def mocked(call: NodeCall[Any]) -> Any:
            mock, made, refused = begin(call)
            if refused is not None or mock is None:
                return refused or behaviour(call)
            if mock._takes_ms and kind.type.suspends:
                if not call.resumed:
                    self._mocks.note(kind, made, mock)
                    return Suspend(until=call.now + mock._takes_ms)
            elif mock._takes_ms:
                raise TypeError(f"`{call.node}` is a pure node and takes no time")
            else:
                self._mocks.note(kind, made, mock)
            return behaviour(call) if mock._real else mock.answer(made)

        @wraps(behaviour)
        async def mocked_async(call: NodeCall[Any]) -> Any:
            mock, made, refused = begin(call)
            if refused is not None or mock is None:
                return refused or await behaviour(call)
            self._mocks.note(kind, made, mock)
            if mock._takes_ms and await self._sleep(call.node, mock._takes_ms):
                return Failure(Error("TIMEOUT", "the node took longer than its timeout", engine=True))
            return await behaviour(call) if mock._real else mock.answer(made)

        chosen = mocked_async if iscoroutinefunction(behaviour) else self._counting(mocked)
        return msgspec.structs.replace(kind, run=chosen)

    def _counting(self, behaviour: Callable[[NodeCall[Any]], Any]) -> Callable[[NodeCall[Any]], Any]:
        """Return a behaviour that notes how many items it makes."""

        @wraps(behaviour)
        def counted(call: NodeCall[Any]) -> Any:
            outcome = behaviour(call)
            if type(outcome) is FanOut:
                self._mocks.fanned_out(call.node, call.scope["@path"].strip("/"), outcome.count)
            return outcome

        return counted


def _recorded(log: Path) -> Iterator[tuple[str, Call]]:
    """Yield the calls that a file recorded, each with the type of its node."""
    if log.exists():
        for line in log.read_text(encoding="utf-8").splitlines():
            fields = json.loads(line)
            kind = fields.pop("type")
            del fields["effect"]
            yield kind, Call(**fields)


def _id_of(node: NodePlan) -> tuple[str, ...]:
    return (node.id,)


def _type_names(node: NodePlan) -> tuple[str, ...]:
    return (node.type.name, *node.type.aliases)


def _splits_around(plan: Plan, node: NodePlan) -> list[str]:
    """Return the splits that a node is in, outermost first."""
    found: list[str] = []
    while node.split >= 0:
        node = plan.nodes[node.split]
        found.insert(0, node.id)
    return found


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _beyond(split: str, count: int) -> str:
    return f"`{split}` made {count} item{'' if count == 1 else 's'}, the first is 0"


def _index(item: str) -> int:
    """Return the position of an item in the innermost split."""
    return int(item.rpartition(":")[2])


@dataclasses.dataclass(frozen=True)
class Effect:
    """One effect of an execution: a node with effects, in one item of all splits around it."""

    execution: str
    node: str
    item: str

    def __str__(self) -> str:
        return f"{self.node}, item {self.item}" if self.item else self.node


@dataclasses.dataclass
class EffectCalls:
    """The calls of one effect: the idempotency key of each, and how often each attempt was called."""

    keys: list[str] = dataclasses.field(default_factory=list)
    attempts: Counter[int] = dataclasses.field(default_factory=Counter)

    @property
    def repeated(self) -> bool:
        """Whether an attempt was called more than once."""
        return max(self.attempts.values(), default=0) > 1


def calls_by_effect(log: Path) -> dict[Effect, EffectCalls]:
    """Return the recorded calls of nodes with effects outside of the engine. Other nodes have no key and may run again
    at any time."""
    found: defaultdict[Effect, EffectCalls] = defaultdict(EffectCalls)
    if log.exists():
        for line in log.read_text(encoding="utf-8").splitlines():
            each = json.loads(line)
            if each["effect"]:
                calls = found[Effect(each["execution"], each["node"], each["item"])]
                calls.keys.append(each["idempotency_key"])
                calls.attempts[each["attempt"]] += 1
    return found
