"""`rune up` answers while it evaluates the most expensive expressions there are, and each of them ends."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rune.client import AsyncClient

pytestmark = pytest.mark.long

SOURCE = Path(__file__).resolve().parents[3] / "src"
LIMIT_MS = 1_500
DEADLINE_S = 120.0
MAX_SILENCE_S = 1.0

WORST: list[tuple[str, Any]] = [
    ('find_all($trigger.t, "x*y|x")', {"t": "x" * 60_000}),
    ("matches($trigger.t, '(?:a?){300}(?:[ab]*a[ab]{300}){2}c')", {"t": "abbababb" * 10_000}),
    ("[matches('a', '(?i)\\\\pL{20}' + str(i)) for i in range(100)]", {}),
    ("sorted([$trigger.t, $trigger.u] * 20000)[0]", {"t": "x" * 400_000 + "a", "u": "x" * 400_000 + "b"}),
    ("min([$trigger.t, $trigger.u] * 20000)", {"t": "x" * 400_000 + "a", "u": "x" * 400_000 + "b"}),
    ("$trigger.u in [$trigger.t] * 100000", {"t": "x" * 400_000 + "a", "u": "x" * 400_000 + "b"}),
    ("len([1 for x in $trigger.r if -1 in $trigger.r])", {"r": list(range(100_000))}),
    ("[replace($trigger.t, 'ab', '') for i in range(2000)]", {"t": "ab" * 400_000}),
    ("unique([[$trigger.r], [$trigger.r]] * 100)", {"r": [{"k": at} for at in range(20_000)]}),
    ("[get({}, $trigger.t) for i in range(5000)]", {"t": "." * 900_000}),
    ("parse_date($trigger.t, $trigger.t)", {"t": "-" * 900_000}),
    ("[1 for a in $trigger.r for b in $trigger.r]", {"r": list(range(3_000))}),
]


def definition(expression: str) -> dict[str, Any]:
    value = "{{ " + expression + " }}"
    return {
        "id": "hostile",
        "nodes": [
            {"id": "in", "type": "input"},
            {"id": "out", "type": "output", "parameters": {"value": value}},
        ],
        "edges": [{"src": "in", "dst": "out"}],
    }


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(SOURCE)]))
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "RUNE_HOME": str(tmp_path),
        "RUNE_EXPRESSION_MS": str(LIMIT_MS),
    }
    command = [sys.executable, "-m", "rune.cli.commands.serve", "--port", "0", "--json", "--no-examples"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield str(json.loads(process.stdout.readline())["url"])
        finally:
            process.terminate()
            process.wait(60)


class Pings:
    """Asks /healthz from a thread, and notes the longest answer."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.longest = 0.0
        self.count = 0

    def __enter__(self) -> Pings:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @staticmethod
    def allowed() -> float:
        """How long an answer may take: a process that shares its cores with others answers later by as much as it has
        to wait for them."""
        return MAX_SILENCE_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            began = time.monotonic()
            with urllib.request.urlopen(f"{self._url}/healthz", timeout=60) as answer:
                answer.read()
            self.longest = max(self.longest, time.monotonic() - began)
            self.count += 1


def test_health_is_answered_while_the_worst_expressions_run(url: str) -> None:
    async def go() -> list[str | None]:
        async with AsyncClient(url, timeout=DEADLINE_S) as client:
            started = [
                await client.start_definition(definition(source), payload) for source, payload in WORST
            ]
            ended = [await client.wait(each.execution_id, DEADLINE_S) for each in started]
        return [each.error.code if each.error is not None else None for each in ended]

    with Pings(url) as pings:
        ends = asyncio.run(go())
    for (source, _), end in zip(WORST, ends, strict=True):
        assert end in (None, "BUDGET_EXCEEDED", "EXPRESSION_ERROR"), (source, end)
    assert ends.count("BUDGET_EXCEEDED") >= 3
    assert pings.count > 10
    assert pings.longest < Pings.allowed()


def test_a_large_transform_is_evaluated(url: str) -> None:
    source = "[len($trigger.r), sum(x % 7 for x in $trigger.r), max($trigger.r)]"
    numbers = list(range(130_000))

    async def go() -> Any:
        async with AsyncClient(url, timeout=DEADLINE_S) as client:
            started = await client.start_definition(definition(source), {"r": numbers})
            return await client.wait(started.execution_id, DEADLINE_S)

    ended = asyncio.run(go())
    assert (ended.status, ended.error) == ("completed", None)
