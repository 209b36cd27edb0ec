"""Hazards I20 and I21: cost and slots."""

from __future__ import annotations

import asyncio
import itertools

from rune.codec.facts import encode_fact
from rune.core.execution.fact import EffectStarted
from tests.support.backends import ClusterBackend, backends, redis_command
from tests.support.workflows import of_type, recording_registry, split, wait, workflow

pytestmark = backends("redis")


def test_h_i20_one_slot_is_enough(backend: ClusterBackend) -> None:
    # fault: i20: a worker reserves a slot
    calls: list[str] = []
    document = workflow(
        "start>s s>c c>w w>g start>d g>m d>m m>out",
        s=split("{{ range(5) }}"), c=of_type("t.call"), w=wait(1), g=of_type("aggregator"), d=of_type("t.call"),
        m=of_type("merge"), out=of_type("output", value="{{ len($g) }}"),
    )  # fmt: skip
    assert backend.run(document, registry=recording_registry(calls), slots=1)["output"] == 5
    assert len(calls) == 6


async def _script_calls() -> int:
    """Count the scripts that the server has run."""
    info = (await redis_command("INFO", "commandstats")).decode()
    line = next(each for each in info.splitlines() if each.startswith("cmdstat_fcall:"))
    return int(line.partition("calls=")[2].partition(",")[0])


async def _network_bytes() -> int:
    """Count the bytes that the server has received and sent."""
    info = (await redis_command("INFO", "stats")).decode().splitlines()
    names = ("total_net_input_bytes:", "total_net_output_bytes:")
    return sum(int(each.partition(":")[2]) for each in info if each.startswith(names))


def test_h_i21_cost_is_linear_in_split_width(backend: ClusterBackend) -> None:
    # fault: i21: an item that ends reads all other items
    document = workflow("start>s s>c c>g", s=split(), c=of_type("t.call"), g=of_type("aggregator"))

    async def cost(width: int) -> tuple[int, int]:
        async with backend.open(registry=recording_registry([]), roles=frozenset({"worker"})) as engine:
            before, sent = await _script_calls(), await _network_bytes()
            run = await engine.start(document, {"items": list(range(width))})
            await run.end(60)
            return await _script_calls() - before, await _network_bytes() - sent

    async def go() -> tuple[tuple[int, int], tuple[int, int]]:
        return await cost(50), await cost(400)

    narrow, wide = asyncio.run(go())
    assert wide[0] <= 4 * 400
    # What an engine reads when it connects does not count. It is 3 to 4 KB for each of up to 400 items.
    assert (wide[1] - narrow[1]) / 350 <= 8_000


def test_h_i21_payloads_do_not_double_per_diamond(backend: ClusterBackend) -> None:
    # fault: i21-diamonds: a payload that a node passes on is stored again
    names = [f"d{number}" for number in range(13)]
    edges, nodes = [f"start>{names[0]}"], {names[0]: of_type("noop")}
    for one, two in itertools.pairwise(names):
        edges += [f"{one}>{one}a", f"{one}>{one}b", f"{one}a>{two}", f"{one}b>{two}"]
        nodes |= {f"{one}a": of_type("noop"), f"{one}b": of_type("noop"), two: of_type("noop")}

    async def go() -> tuple[str, int]:
        async with backend.open() as engine:
            run = await engine.start(workflow(" ".join(edges), **nodes), {"text": "x" * 100})
            status = (await run.end()).status
            rows = [row.fact for row in await run.facts()]
            return status, sum(len(encode_fact(each)) for each in rows if not isinstance(each, EffectStarted))

    status, size = asyncio.run(go())
    assert status == "completed"
    assert size < 20_000
