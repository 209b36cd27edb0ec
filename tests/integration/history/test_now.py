"""What a node takes for now is its own begin, whatever ran before it in the same worker."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rune.nodes.custom import NodeContext, kind_of, node
from rune.nodes.registry import Registry, standard_registry
from tests.support.backends import Backend, backends
from tests.support.workflows import Fields, edit, of_type, workflow

pytestmark = backends("embedded", "redis", "redis-travelling", "rabbitmq")

LASTS_MS = 300
WAITS_MS = 300


@node("now.slow")
async def slow() -> dict[str, Any]:
    """End `LASTS_MS` after it began."""
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(LASTS_MS / 1000, passed.set)
    await passed.wait()
    return {}


@node("now.busy", effectful=False)
def busy(ctx: NodeContext, ms: int) -> dict[str, Any]:
    """Keep its thread for `ms`, and return the time that it was told."""
    end = time.monotonic() + ms / 1000
    while time.monotonic() < end:
        pass
    return {"now": ctx.now}


def registry() -> Registry:
    kinds = [kind_of(slow), kind_of(busy)]
    return standard_registry().extended([each for each in kinds if each is not None])


def epoch_ms(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() * 1000


def nodes_of(document: Fields) -> Fields:
    return {each["node_id"]: each for each in document["nodes"]}


def started_ms(run: Fields) -> float:
    return epoch_ms(run["started_at"])


def ended_ms(run: Fields) -> float:
    return started_ms(run) + float(run["duration_ms"])


def run(backend: Backend, edges: str, ends: str = "completed", **nodes: Fields) -> Fields:
    document = backend.run(workflow(edges, **nodes), registry=registry(), fake_time=False)
    assert document["status"] == ends, document
    return document


def check_begins(begins: Sequence[float], apart_ms: float) -> None:
    assert all(later - earlier >= apart_ms - 2 for earlier, later in itertools.pairwise(begins)), begins


def test_wait_behind_slow_node_lasts_its_duration(backend: Backend) -> None:
    pause = of_type("wait", amount=WAITS_MS / 1000)
    nodes = nodes_of(
        run(backend, "start>io io>pause pause>end", io=of_type("now.slow"), pause=pause, end=edit(x=1))
    )
    assert started_ms(nodes["pause"]) >= ended_ms(nodes["io"]) - 2
    assert nodes["pause"]["output"]["resume_at"] >= started_ms(nodes["pause"]) + WAITS_MS - 2
    assert started_ms(nodes["end"]) - ended_ms(nodes["io"]) >= WAITS_MS - 2


def test_wait_behind_other_nodes_of_the_run_lasts_its_duration(backend: Backend) -> None:
    """The first of three inline nodes has the time of the claim; the third has to have its own."""
    document = run(
        backend,
        "start>a a>b b>pause pause>end",
        a=of_type("now.busy", ms=LASTS_MS),
        b=of_type("now.busy", ms=LASTS_MS),
        pause=of_type("wait", amount=WAITS_MS / 1000),
        end=edit(x=1),
    )
    nodes = nodes_of(document)
    assert started_ms(nodes["end"]) - ended_ms(nodes["b"]) >= WAITS_MS - 2


def test_wait_for_date_in_expression_counts_from_its_own_now(backend: Backend) -> None:
    due = "{{ add_time(now(), 0.3, 'seconds') }}"
    pause = of_type("wait", resume="date_time", date_time=due)
    nodes = nodes_of(
        run(backend, "start>io io>pause pause>end", io=of_type("now.slow"), pause=pause, end=edit(x=1))
    )
    assert started_ms(nodes["end"]) - ended_ms(nodes["io"]) >= WAITS_MS - 2


def test_every_node_of_an_inline_run_has_its_own_now(backend: Backend) -> None:
    document = run(
        backend,
        "start>io io>a a>b b>c c>d",
        io=of_type("now.slow"),
        a=of_type("datetime", operation="now"),
        b=of_type("now.busy", ms=100),
        c=of_type("datetime", operation="now"),
        d=edit(at="{{ now() }}"),
    )
    nodes = nodes_of(document)
    a, c, d = (
        epoch_ms(nodes["a"]["output"]["iso"]),
        epoch_ms(nodes["c"]["output"]["iso"]),
        epoch_ms(nodes["d"]["output"]["at"]),
    )
    assert a >= ended_ms(nodes["io"]) - 2
    check_begins([a, c], 100)
    assert nodes["b"]["output"]["now"] >= a - 2
    assert d >= c - 2
    for name, now in (("a", a), ("c", c), ("d", d)):
        assert abs(now - started_ms(nodes[name])) <= 2, name


def test_every_item_of_a_chunk_has_its_own_now(backend: Backend) -> None:
    """Items are claimed together and run one after another: most begin much later than their claim."""
    document = run(
        backend,
        "start>each each>a a>b b>all",
        each=of_type("split", input_array="{{ range(60) }}"),
        a=edit(work="{{ sum([x * x for x in range(5000)]) }}"),
        b=of_type("datetime", operation="now"),
        all=of_type("aggregator"),
    )
    items = [each for each in document["nodes"] if each["node_id"] == "b"]
    assert len(items) == 60
    stale = [each for each in items if abs(epoch_ms(each["output"]["iso"]) - started_ms(each)) > 2]
    assert not stale, (len(stale), stale[:3])


def test_deadline_of_a_signal_counts_from_the_begin_of_its_wait(backend: Backend) -> None:
    """The timeout of a node that waits must not include the time of the node before it."""
    ask = {**of_type("wait", resume="signal"), "timeout": (LASTS_MS + 100) / 1000}
    document = run(backend, "start>io io>ask", ends="failed", io=of_type("now.slow"), ask=ask)
    nodes = nodes_of(document)
    assert nodes["ask"]["error"]["code"] == "TIMEOUT"
    assert ended_ms(nodes["ask"]) - ended_ms(nodes["io"]) >= LASTS_MS + 100 - 2
