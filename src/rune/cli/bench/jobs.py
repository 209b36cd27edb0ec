"""The jobs: workflows as people write them, and how many executions of them run at a time.

`rune bench` measures the CPU time of each job per unit, the benchmarks of clusters run the same ones there, and a test
counts what each does per unit. This module imports nothing of Rune: `bench/against.py` runs it on the packages of other
commits.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import urlsplit

Document = dict[str, Any]
Nodes = list[dict[str, Any]]

CHAIN = 10
FAR = "2099-01-01T00:00:00Z"
HOOK = "bench"
WAIT_S = 30


class Place(Protocol):
    """A running engine and, for jobs that call it, the URL of its API."""

    url: str

    async def complete(self, document: Document, inputs: Sequence[Any], concurrency: int) -> list[float]:
        """Run one execution per input to its completion; return the ms that each took."""

    async def suspend(self, document: Document, inputs: Sequence[Any], concurrency: int) -> None:
        """Start one execution per input; return once all of them only wait."""

    async def deploy(self, document: Document) -> None:
        """Store a workflow and activate its triggers."""


class Done(NamedTuple):
    """What a load did: counted units, results that it wrote, and the ms of each execution or request."""

    units: int
    results: int
    took: list[float]


Load = Callable[[Place, int, int], Awaitable[Done]]
"""Runs about so many units, with so many executions at a time."""


class Goal(NamedTuple):
    """The least rate, and the least share of the limit or the largest growth of memory."""

    rate: float
    share: float = 0.0
    grown_mb: float = math.inf


class Job(NamedTuple):
    """A load and its size. `rows` are those that the limit writes per unit, so many units in a commit."""

    summary: str
    unit: str
    units: int
    load: Load
    warm_up: int
    concurrency: int
    rows: Literal["node", "item", "execution"]
    per_commit: int
    least: int = 100
    serves: bool = False
    goal: Goal | None = None

    def scaled(self, scale: float) -> int:
        """Return the number of units at a scale."""
        return max(self.least, int(self.units * scale))


def document(nodes: Nodes, *links: tuple[str, str], id: str = "bench") -> Document:
    """Return a definition of nodes and edges."""
    return {"id": id, "nodes": nodes, "edges": [{"src": src, "dst": dst} for src, dst in links]}


def noop(*, effectful: bool) -> dict[str, Any]:
    """A built-in node that does nothing. With an effect it is claimed and recorded by itself."""
    return {"type": "noop", "parameters": {"effectful": effectful}}


def custom(type: str, value: str) -> dict[str, Any]:
    """A custom node that adds one to a value."""
    return {"type": f"bench.{type}", "parameters": {"value": value}}


def assign(*pairs: str) -> dict[str, Any]:
    """A pure node that builds an object from names and values."""
    assignments = [{"name": pairs[i], "value": pairs[i + 1]} for i in range(0, len(pairs), 2)]
    return {"type": "edit", "parameters": {"mode": "keep_only", "assignments": assignments}}


def split(array: str, **more: Any) -> dict[str, Any]:
    """A node that starts an item per element."""
    return {"type": "split", "parameters": {"input_array": array, **more}}


def noop_chain(length: int, *, effectful: bool) -> Document:
    """A chain of built-in nodes that do nothing."""
    names = [f"n{i}" for i in range(length)]
    nodes: Nodes = [{"id": "start", "type": "input"}]
    nodes += [{"id": name, **noop(effectful=effectful)} for name in names]
    return document(nodes, *zip(["start", *names], names, strict=False))


def custom_chain(length: int, type: str) -> Document:
    """A chain of custom nodes; each adds one to the value of the node before it."""
    names = [f"n{i}" for i in range(length)]
    values = ["$trigger.value", *(f"${name}" for name in names)]
    nodes: Nodes = [{"id": "start", "type": "input"}]
    nodes += [{"id": name, **custom(type, value)} for name, value in zip(names, values, strict=False)]
    return document(nodes, *zip(["start", *names], names, strict=False))


def fan(item: dict[str, Any]) -> Document:
    """A split with one node per item, and an aggregator."""
    nodes: Nodes = [
        {"id": "start", "type": "input"},
        {"id": "s", **split("$trigger.xs")},
        {"id": "x", **item},
        {"id": "g", "type": "aggregator"},
        {"id": "n", "type": "output", "parameters": {"value": "{{ len($g) }}"}},
    ]
    return document(nodes, ("start", "s"), ("s", "x"), ("x", "g"), ("g", "n"))


def nested(item: dict[str, Any]) -> Document:
    """A split inside a split."""
    nodes: Nodes = [
        {"id": "start", "type": "input"},
        {"id": "so", **split("$trigger.rows")},
        {"id": "si", **split("$item")},
        {"id": "x", **item},
        {"id": "gi", "type": "aggregator"},
        {"id": "go", "type": "aggregator"},
        {"id": "n", "type": "output", "parameters": {"value": "{{ sum([len(row) for row in $go]) }}"}},
    ]
    return document(nodes, ("start", "so"), ("so", "si"), ("si", "x"), ("x", "gi"), ("gi", "go"), ("go", "n"))


def waiting() -> Document:
    """A wait until a given date."""
    nodes: Nodes = [
        {"id": "start", "type": "input"},
        {"id": "nap", "type": "wait", "parameters": {"resume": "date_time", "date_time": "$trigger.when"}},
        {"id": "end", "type": "noop"},
    ]
    return document(nodes, ("start", "nap"), ("nap", "end"))


def hooked() -> Document:
    """A webhook that responds with the result of a node whose first attempt fails."""
    retry = {"max_attempts": 2, "initial_delay": 0, "jitter": False}
    nodes: Nodes = [
        {"id": "hook", "type": "webhook", "parameters": {"path": HOOK, "respond": "result"}},
        {"id": "n0", **custom("add_after_failure", "$trigger.body.value"), "retry": retry},
    ]
    return document(nodes, ("hook", "n0"), id="bench-hook")


def chains(flow: Document) -> Load:
    """Executions of a chain; the unit is a node."""
    length = len(flow["nodes"]) - 1

    async def load(place: Place, units: int, concurrency: int) -> Done:
        count = math.ceil(units / length)
        took = await place.complete(flow, [{"value": 1}] * count, concurrency)
        return Done(count * length, count * length, took)

    return load


def fans(item: dict[str, Any]) -> Load:
    """One execution of a fan-out; the unit is an item."""
    flow = fan(item)

    async def load(place: Place, units: int, concurrency: int) -> Done:
        took = await place.complete(flow, [{"xs": list(range(units))}], concurrency)
        return Done(units, units + 3, took)

    return load


def nested_fans(item: dict[str, Any]) -> Load:
    """One execution of a square of items; the unit is an inner item."""
    flow = nested(item)

    async def load(place: Place, units: int, concurrency: int) -> Done:
        side = math.isqrt(units)
        took = await place.complete(flow, [{"rows": [list(range(side))] * side}], concurrency)
        return Done(side * side, side * side + 2 * side + 3, took)

    return load


async def arm(place: Place, units: int, concurrency: int) -> Done:
    """Executions that wait for a distant date; the unit is an execution."""
    await place.suspend(waiting(), [{"when": FAR}] * units, concurrency)
    return Done(units, 0, [])


async def start_over_api(place: Place, units: int, concurrency: int) -> Done:
    """Executions of one node, each started and awaited by one request."""
    flow = custom_chain(1, "add_async")
    await place.deploy(flow)
    path = f"/api/v1/workflows/{flow['id']}/executions?wait={WAIT_S}"
    took = await post_all(place.url, path, {"input": {"value": 1}}, units, concurrency)
    return Done(units, units, took)


async def call_webhook(place: Place, units: int, concurrency: int) -> Done:
    """Requests to a webhook, each answered with the result of a node that was retried."""
    await place.deploy(hooked())
    took = await post_all(place.url, f"/hooks/{HOOK}", {"value": 1}, units, concurrency)
    return Done(units, units, took)


async def post_all(url: str, path: str, body: Any, count: int, concurrency: int) -> list[float]:
    """Send requests over so many connections; return the ms that each took. Raise unless each execution completed."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(data)}"
    request = head.encode() + b"\r\n\r\n" + data
    address = urlsplit(url)
    left = iter(range(count))
    took: list[float] = []

    async def lane() -> None:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        for _ in left:
            began = time.perf_counter()
            writer.write(request)
            response = await reader.readuntil(b"\r\n\r\n")
            size = int(response.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            text = await reader.readexactly(size)
            if b'"completed"' not in text:
                raise AssertionError(f"{response.splitlines()[0].decode()}: {text.decode()}")
            took.append((time.perf_counter() - began) * 1000)
        writer.close()

    await asyncio.gather(*(lane() for _ in range(min(concurrency, count))))
    return took


def _chain(summary: str, flow: Document, per_commit: int = 200, goal: Goal | None = None) -> Job:
    # Pure nodes are committed with their execution, and written without claims.
    rows: Literal["node", "item"] = "node" if per_commit == 200 else "item"
    return Job(summary, "nodes", 40_000, chains(flow), 2_000, 200, rows, per_commit, least=2_000, goal=goal)


def _fan(summary: str, units: int, item: dict[str, Any], goal: Goal | None = None) -> Job:
    rows: Literal["node", "item"] = "item" if item["type"] == "edit" else "node"
    return Job(summary, "items", units, fans(item), 3, 1, rows, 256, goal=goal)


def _nested(summary: str, item: dict[str, Any], goal: Goal | None = None) -> Job:
    rows: Literal["node", "item"] = "item" if item["type"] == "edit" else "node"
    return Job(summary, "items", 10_000, nested_fans(item), 4, 1, rows, 256, goal=goal)


PURE = assign("v", "$item")
EFFECT = custom("add_async", "$item")

JOBS: dict[str, Job] = {
    "chain-effectful": _chain(
        "chains of 10 built-in nodes, each claimed and committed separately",
        noop_chain(CHAIN, effectful=True),
        goal=Goal(10_000, share=0.2),
    ),
    "chain-pure": _chain(
        "chains of 10 pure built-in nodes, committed together",
        noop_chain(CHAIN, effectful=False),
        per_commit=2_000,
        goal=Goal(25_000),
    ),
    "chain-async": _chain("chains of 10 custom nodes, `async def`", custom_chain(CHAIN, "add_async")),
    "chain-def": _chain("chains of 10 custom nodes, `def`, which run in threads", custom_chain(CHAIN, "add")),
    "fan-10k": _fan("a fan-out of 10,000 pure items", 10_000, PURE, Goal(8_000, grown_mb=100)),
    "fan-100k": _fan("a fan-out of 100,000 pure items", 100_000, PURE, Goal(6_400, grown_mb=200)),
    "fan-effect-10k": _fan("a fan-out of 10,000 items with an effect", 10_000, EFFECT),
    "fan-effect-100k": _fan("a fan-out of 100,000 items with an effect", 100_000, EFFECT),
    "nested-100x100": _nested(
        "a split inside a split: 100 x 100 pure items", PURE, Goal(8_000, grown_mb=100)
    ),
    "nested-effect": _nested("a split inside a split: 100 x 100 items with an effect", EFFECT),
    "one-node": Job(
        "executions of one custom node, `async def`",
        "executions",
        10_000,
        chains(custom_chain(1, "add_async")),
        200,
        200,
        "execution",
        200,
    ),
    "armed-waits": Job(
        "executions that wait for a distant date, until they are on disk only",
        "executions",
        20_000,
        arm,
        400,
        400,
        "execution",
        400,
    ),
    "api-starts": Job(
        "executions of one custom node, each started and awaited by one request; the client included",
        "executions",
        5_000,
        start_over_api,
        200,
        64,
        "execution",
        64,
        serves=True,
    ),
    "webhook-retry": Job(
        "requests to a webhook whose node fails once and is retried; the client included",
        "executions",
        5_000,
        call_webhook,
        200,
        64,
        "execution",
        64,
        serves=True,
    ),
}
