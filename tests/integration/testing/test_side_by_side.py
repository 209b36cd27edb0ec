"""Executions that share the clock of a test run as each of them does alone, whatever is started and awaited between."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from rune.testing.engine import EmbeddedEngine, Run

LONG_S = 3 * 3600
INPUT: dict[str, Any] = {"id": "in", "type": "input"}


def chain(id: str, *nodes: dict[str, Any]) -> dict[str, Any]:
    names = ["in", *(each["id"] for each in nodes)]
    edges = [{"src": one, "dst": other} for one, other in itertools.pairwise(names)]
    return {"id": id, "nodes": [INPUT, *nodes], "edges": edges}


def wait(id: str, seconds: float) -> dict[str, Any]:
    return {"id": id, "type": "wait", "parameters": {"amount": seconds, "unit": "seconds"}}


def signal(id: str, timeout: float) -> dict[str, Any]:
    return {
        "id": id,
        "type": "wait",
        "timeout": timeout,
        "error": "ignore",
        "parameters": {"resume": "signal", "name": "never"},
    }


NAP = chain("nap", wait("short", 1), wait("long", 1_200), wait("last", 10))
ASK = chain("ask", signal("answer", 600), wait("after", 30))
RACE = {
    "id": "race",
    "nodes": [
        INPUT,
        wait("slow", 900),
        {
            "id": "child",
            "type": "workflow",
            "parameters": {"workflow": "nap"},
            "timeout": 700,
            "error": "branch",
        },
        {"id": "first", "type": "merge", "parameters": {"wait_mode": "wait_for_any", "cancel_losers": True}},
    ],
    "edges": [
        {"src": "in", "dst": "slow"},
        {"src": "in", "dst": "child"},
        {"src": "slow", "dst": "first"},
        {"src": "child", "dst": "first", "is_error": True},
    ],
}
ITEMS = {
    "id": "items",
    "nodes": [
        INPUT,
        {"id": "s", "type": "split", "parameters": {"input_array": [5, 500, 50]}},
        {"id": "w", "type": "wait", "parameters": {"amount": "{{ $item }}", "unit": "seconds"}},
        {"id": "all", "type": "aggregator", "parameters": {"timeout": 400}},
    ],
    "edges": [{"src": "in", "dst": "s"}, {"src": "s", "dst": "w"}, {"src": "w", "dst": "all"}],
}
WORKFLOWS = [NAP, ASK, RACE, ITEMS]


Summary = tuple[str, list[tuple[str, str, str, int | None]]]


def summary(run: Run) -> Summary:
    """Return how an execution ended, and each node run in the order of their beginnings."""
    result = run.result
    return result.status, [
        (each.node_id, each.item, each.status, each.duration_ms) for each in result.timeline
    ]


def alone(folder: Path, document: dict[str, Any]) -> Summary:
    with EmbeddedEngine(folder) as engine:
        engine.deploy(NAP)
        run = engine.start(document)
        engine.advance(LONG_S)
        return summary(run)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Summary]:
    folder = tmp_path_factory.mktemp("alone")
    return {each["id"]: alone(folder / each["id"], each) for each in WORKFLOWS}


def test_executions_alone_keep_their_times(expected: dict[str, Summary]) -> None:
    times = {id: {node: ms for node, _, _, ms in nodes} for id, (_, nodes) in expected.items()}
    assert times["nap"] | {"in": 0} == {"in": 0, "short": 1_000, "long": 1_200_000, "last": 10_000}
    assert times["ask"] | {"in": 0} == {"in": 0, "answer": 600_000, "after": 30_000}
    assert (times["race"]["child"], expected["race"][0]) == (700_000, "completed")
    assert expected["items"][0] == "failed"


@pytest.mark.parametrize("seed", range(12))
def test_executions_side_by_side_run_as_alone(
    tmp_path: Path, expected: dict[str, Summary], seed: int
) -> None:
    chance = random.Random(seed)
    with EmbeddedEngine(tmp_path) as engine:
        engine.deploy(NAP)
        runs: list[tuple[str, Run]] = []
        for _ in range(6):
            document = chance.choice(WORKFLOWS)
            runs.append((document["id"], engine.start(document)))
            between = chance.choice(["nothing", "settle", "advance", "far"])
            if between == "settle":
                engine.settle()
            elif between != "nothing":
                engine.advance(
                    chance.choice([0, 1, 60]) if between == "advance" else chance.randint(300, 2_000)
                )
        engine.advance(LONG_S)
        assert [(id, summary(run)) for id, run in runs] == [(id, expected[id]) for id, _ in runs]
