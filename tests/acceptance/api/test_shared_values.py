"""What exists is what costs: values that share parts are run, stored and shown without being written out."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_server import RunningServer, run
from tests.support.documents import Raw, node
from tests.support.paths import SOURCE
from tests.support.shapes import START, chain, diamonds, done, ladder, nested_merges, wide_join
from tests.support.waiting import until

pytestmark = pytest.mark.long

SMALL, LARGE = 4, 16
FACTOR = LARGE // SMALL
NOISE_S = 0.25
MAX_SHOWN_BYTES = 1_000_000
"""Payloads of up to 64 KiB are shown at each node that passes them on."""

CPU_LIMIT_S = 60
SIGNAL = node("asked", "wait", {"resume": "signal", "name": "go"})

READERS: dict[str, str] = {
    "execution": "",
    "document": "/document",
    "output": "/output",
    "input": "/input",
    "explain": "/explain",
    "runs": "/nodes?limit=1000",
    "graph": "/graph",
    "test": "/test",
    "part": "/nodes/{last}/output?depth=2",
    "inner": "/nodes/{last}/output?pointer={pointer}&depth=1",
    "search": "/nodes/{last}/output?find=nowhere",
    "attempts": "/nodes/{last}/attempts",
}
"""Every way to read an execution whose answer has no whole payload of a join."""


def joins(count: int) -> tuple[Raw, dict[str, str]]:
    pointer = "".join(f"/a{at}" for at in reversed(range(count)))
    return diamonds(count, done()), {"last": f"n{count}", "pointer": pointer}


SHAPES: dict[str, Callable[[int], tuple[Raw, dict[str, str]]]] = {
    "diamonds": joins,
    "ladder": lambda count: (ladder(count), {"last": f"n{count + 1}", "pointer": f"/n{count}"}),
    "wide": lambda count: (wide_join(count), {"last": "join", "pointer": "/b0"}),
    "chain": lambda count: (chain(count), {"last": f"n{count}", "pointer": "/object"}),
}


async def costs(server: RunningServer, shape: str, count: int, start: Any) -> dict[str, tuple[float, int]]:
    """Run a shape and read it in every way; return the CPU seconds and the bytes of each."""
    document, places = SHAPES[shape](count)
    await server.deploy(document)
    began = time.process_time()
    execution = await server.ended(document["id"], start)
    found = {"run": (time.process_time() - began, 0)}
    for name, path in READERS.items():
        best, size = 1e9, 0
        for _ in range(3):
            began = time.process_time()
            answer = await server.http.get(f"/api/v1/executions/{execution}{path.format(**places)}")
            assert answer.status_code == 200, (name, answer.text[:300])
            best, size = min(best, time.process_time() - began), len(answer.content)
        found[name] = best, size
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_cost_of_running_and_reading_grows_with_what_exists(tmp_path: Path, shape: str) -> None:
    async def work(server: RunningServer) -> None:
        await costs(server, shape, 2, START)
        small = await costs(server, shape, SMALL, START)
        large = await costs(server, shape, LARGE, START)
        for name, (cpu, size) in large.items():
            assert size <= 2 * FACTOR * small[name][1] + MAX_SHOWN_BYTES, (name, small[name][1], size)
            assert cpu <= 4 * FACTOR * small[name][0] + NOISE_S, (name, small[name][0], cpu)

    run(tmp_path, work)


@pytest.mark.parametrize("start", [{"text": "x" * 100_000}, {"many": [{"n": at} for at in range(10_000)]}])
def test_large_start_payload_is_not_repeated_by_readers(tmp_path: Path, start: Any) -> None:
    async def work(server: RunningServer) -> None:
        small = await costs(server, "diamonds", 1, start)
        large = await costs(server, "diamonds", 8, start)
        for name, (_, size) in large.items():
            assert size <= 2 * small[name][1] + 70_000, (name, small[name][1], size)

    run(tmp_path, work)


def test_payload_above_the_limit_fails_its_node_and_every_reader_answers(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        document = diamonds(60, done())
        await server.deploy(document)
        began = time.process_time()
        execution = await server.ended(document["id"], {})
        shown = await server.get(f"/executions/{execution}")
        assert shown["status"] == "halted"
        assert shown["error"]["code"] == "LIMIT_EXCEEDED"
        for path in READERS.values():
            where = path.format(last="n12", pointer="/a11/b10")
            await server.get(f"/executions/{execution}{where}")
        assert time.process_time() - began < 10

    run(tmp_path, work)


def test_execution_that_waits_with_shared_values_is_resumed_after_a_restart(tmp_path: Path) -> None:
    document = diamonds(LARGE, SIGNAL, node("last", "output", {"value": "{{ $n3.a2.b1.a0.text }}"}))

    async def start(server: RunningServer) -> str:
        await server.deploy(document)
        execution = (await server.client.start(document["id"], START)).execution_id
        await until(lambda: asked(server, execution), "the execution waits")
        return execution

    async def asked(server: RunningServer, execution: str) -> bool:
        return bool((await server.get(f"/executions/{execution}/explain"))["waiting"])

    execution = run(tmp_path, start)

    async def resume(server: RunningServer) -> None:
        began = time.process_time()
        await server.post(f"/executions/{execution}/signals", {"name": "go", "value": {}})
        await server.client.wait(execution, 60)
        assert await server.get(f"/executions/{execution}/output") == START["text"]
        assert time.process_time() - began < 5

    run(tmp_path, resume)


def test_child_rerun_and_comparison_keep_values_shared(tmp_path: Path) -> None:
    child = diamonds(LARGE, done())
    calls = node("call", "workflow", {"workflow": child["id"], "input": "{{ $trigger }}"})
    parent = diamonds(LARGE, calls) | {"id": "parent"}

    async def work(server: RunningServer) -> None:
        await server.deploy(child, parent)
        began = time.process_time()
        first = await server.ended("parent", START)
        assert (await server.get(f"/executions/{first}/output")) == {"call": "done"}
        again = await server.post(f"/executions/{first}/rerun", {"node": "n8"}, 202)
        await server.client.wait(again["execution_id"], 60)
        other = again["execution_id"]
        assert (await server.get(f"/executions/{first}/diff/{other}"))["nodes"] == []
        assert (await server.get(f"/executions/{first}/diff/{other}/summary"))["first"] is None
        assert time.process_time() - began < 10

    run(tmp_path, work)


@pytest.mark.parametrize("shape", [diamonds, nested_merges, ladder])
def test_graph_that_doubles_its_payload_ends_within_the_limits(
    tmp_path: Path, shape: Callable[[int], Raw]
) -> None:
    """In a process with a limit on its CPU time: written out, the payload has 2^60 times the start payload."""

    file = tmp_path / "graph.json"
    file.write_text(json.dumps(shape(60 if shape is not ladder else 120)))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))

    ended = subprocess.run(
        [sys.executable, "-m", "rune", "run", str(file), "--json"],
        env={"PYTHONPATH": str(SOURCE), "RUNE_HOME": str(tmp_path / "home"), "PATH": ""},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1, (ended.returncode, ended.stderr[-300:])
    shown = json.loads(ended.stdout)
    assert (shown["status"], shown["error"]["code"]) == ("halted", "LIMIT_EXCEEDED")
    assert len(ended.stdout) < 20_000_000
