"""Times in the history: each node has its own duration, and an execution ends after its last node."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Any

from rune.nodes.custom import NodeContext, kind_of, node
from rune.nodes.registry import Registry, standard_registry
from tests.support.backends import Backend, backends
from tests.support.workflows import edit, of_type, workflow

pytestmark = backends("embedded", "redis", "rabbitmq")

LASTS_MS = 400


@node("times.slow")
async def slow() -> dict[str, Any]:
    """End `LASTS_MS` after it began."""
    await take_time()
    return {}


async def take_time() -> None:
    """End after `LASTS_MS`."""
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(LASTS_MS / 1000, passed.set)
    await passed.wait()


@node("times.second_attempt")
async def second_attempt(ctx: NodeContext) -> dict[str, Any]:
    """Take `LASTS_MS` and fail in the first attempt."""
    if ctx.attempt == 1:
        await take_time()
        raise ValueError("failed on purpose")
    return {}


def registry() -> Registry:
    kinds = [kind_of(slow), kind_of(second_attempt)]
    return standard_registry().extended([each for each in kinds if each is not None])


def ended_ms(run: dict[str, Any]) -> float:
    return datetime.fromisoformat(run["started_at"]).timestamp() * 1000 + float(run["duration_ms"])


def nodes_of(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["node_id"]: each for each in document["nodes"]}


def test_duration_of_node_after_slow_node_is_its_own(backend: Backend) -> None:
    document = workflow("start>io io>a a>b", io=of_type("times.slow"), a=edit(x=1), b=edit(y="{{ $a.x }}"))
    nodes = nodes_of(backend.run(document, registry=registry(), fake_time=False))
    assert nodes["io"]["duration_ms"] >= LASTS_MS - 2
    # The two nodes behind it run in place; together they are far below what they used to repeat.
    assert nodes["a"]["duration_ms"] + nodes["b"]["duration_ms"] < nodes["io"]["duration_ms"]
    assert nodes["a"]["started_at"] >= nodes["io"]["started_at"]
    assert nodes["b"]["started_at"] >= nodes["a"]["started_at"]


def test_started_at_of_retried_node_is_the_beginning_of_its_first_attempt(backend: Backend) -> None:
    retry = {"max_attempts": 2, "initial_delay": 0.001, "jitter": False}
    document = workflow("start>io", io={**of_type("times.second_attempt"), "retry": retry})
    nodes = nodes_of(backend.run(document, registry=registry(), fake_time=False))
    assert nodes["io"]["attempts"] == 2
    assert nodes["io"]["duration_ms"] >= LASTS_MS - 2


def test_execution_completes_after_the_end_of_its_last_node(backend: Backend) -> None:
    document = workflow("start>io start>b io>a", io=of_type("times.slow"), a=edit(x=1), b=edit(y=1))
    single = workflow("start>io io>a", io=of_type("times.slow"), a=edit(x=1))
    for each in (document, single):
        result = backend.run(each, registry=registry(), fake_time=False)
        completed = datetime.fromisoformat(result["completed_at"]).timestamp() * 1000
        assert completed >= max(map(ended_ms, result["nodes"])) - 0.5
        assert completed <= time.time() * 1000 + 1
