"""A process is killed at each failpoint of an operation; the next process continues. Nothing is lost or repeated."""

from __future__ import annotations

import json
import pathlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.embedded.operation_scenarios import (
    RESUMED_OUTPUT,
    SCENARIOS,
    SIGNAL,
    START_POINTS,
    WAITS,
    Scenario,
    document,
    effect,
)
from tests.integration.embedded.scenario_process import ScenarioRunner
from tests.support.forked_rune import KILLED
from tests.support.whole import WHOLE

pytestmark = pytest.mark.long

CONCURRENT = {"early signal"}  # the kill may follow an effect that runs concurrently with the operation
MAX_PASSES = 2  # passes of a failpoint before the process is killed there


@pytest.fixture
def runner(tmp_path: pathlib.Path) -> Iterator[ScenarioRunner]:
    with ScenarioRunner(tmp_path) as made:
        yield made


def _ledger(home: pathlib.Path) -> Counter[str]:
    """The number of calls per effect."""
    path = home / "ledger"
    return Counter(path.read_text().split() if path.exists() else [])


def _by_node(calls: Counter[str]) -> Counter[str]:
    return Counter(key.split(":", 1)[1].split("@")[0] for key in calls)


def _audit(runner: ScenarioRunner, home: pathlib.Path) -> None:
    environment = {
        "RUNE_HOME": str(home),
        "RUNE_NODES": "tests.support.ledger_nodes",
        "RUNE_FAILPOINT": "",
    }
    code, out, err = runner.rune("verify", "--all", "--json", **environment)
    assert code == 0, out + err
    assert json.loads(out)["violations"] == 0


def _check(scenario: Scenario, home: pathlib.Path, documents: dict[str, Any], *, repeatable: bool) -> None:
    ends = {name: (documents[name]["status"], documents[name]["output"]) for name in scenario.ends}
    assert ends == scenario.ends
    calls = _ledger(home)
    repeated = [key for key, count in calls.items() if count > 1]
    assert len(repeated) <= (1 if repeatable else 0), calls
    assert {name: _by_node(calls)[name] for name in scenario.effects} == scenario.effects


MATRIX = [(name, point) for name, scenario in SCENARIOS.items() for point in scenario.points]


@pytest.mark.parametrize(("name", "point"), MATRIX, ids=["-".join(each) for each in MATRIX])
def test_kill_during_operation_loses_and_repeats_nothing(
    name: str, point: str, tmp_path: pathlib.Path, runner: ScenarioRunner
) -> None:
    scenario = SCENARIOS[name]
    last = 1 + MATRIX.index((name, point)) % MAX_PASSES
    for times in range(1, MAX_PASSES + 1) if WHOLE else range(last, 0, -1):
        home = tmp_path / f"home-{times}"
        exit_code, documents = runner.run_steps(home, scenario.steps, failpoint=f"{point}:{times}")
        if exit_code == KILLED:
            code, documents = runner.run_steps(home, scenario.steps)
            assert code == 0
        _check(scenario, home, documents, repeatable=point == "ran" or name in CONCURRENT)
        _audit(runner, home)
        assert exit_code == KILLED or times > 1, "the failpoint was never passed"
        if (exit_code == KILLED) is not WHOLE:
            break


ONCE = document(
    "once",
    [effect("e1"), effect("pay", at_most_once=True, error="ignore"), effect("e2")],
    "{{ $pay.did ?? $pay.error.code }}",
)


@pytest.mark.parametrize("point", ["begun", "received", "claimed", "ran", "journaled", "applied", "sent"])
def test_at_most_once_node_runs_at_most_once_after_kill(
    point: str, tmp_path: pathlib.Path, runner: ScenarioRunner
) -> None:
    """A kill between the start of the effect and its result makes the node fail instead of running again."""
    steps: list[dict[str, Any]] = [{"start": {"document": ONCE, "key": "start"}}, {"await": "ended"}]
    for times in (1, 2, 3) if WHOLE else (1, 2):
        home = tmp_path / f"home-{times}"
        exit_code, documents = runner.run_steps(home, steps, failpoint=f"{point}:{times}")
        if exit_code == KILLED:
            _, documents = runner.run_steps(home, steps)
        payments = _by_node(_ledger(home))["pay"]
        assert documents["it"]["status"] == "completed"
        assert documents["it"]["output"] in ("pay", "UNKNOWN_OUTCOME")
        assert payments == 1 if documents["it"]["output"] == "pay" else payments <= 1
        assert all(count == 1 for key, count in _ledger(home).items() if ":pay@" in key)
        assert point in ("begun", "ran") or documents["it"]["output"] == "pay"
        _audit(runner, home)
        if exit_code != KILLED:
            assert times > 1
            break


WITHOUT_WORKER: dict[str, tuple[list[dict[str, Any]], tuple[str, ...], tuple[str, Any]]] = {
    "signal": ([SIGNAL], ("signalled", "signal_applied"), ("completed", RESUMED_OUTPUT)),
    "pause": (
        [{"pause": None}, {"resume": None}, SIGNAL],
        ("controlled", "signalled"),
        ("completed", RESUMED_OUTPUT),
    ),
    "cancel": ([{"cancel": None}], ("ending", "ended"), ("cancelled", None)),
    "retry": (
        [{"cancel": None}, {"retry": {"key": "r"}}, {"signal": {"name": "ask", "value": 7, "key": "s1"}}],
        ("ending", "ended", "accepted", "admitted", "signalled"),
        ("completed", RESUMED_OUTPUT),
    ),
}
WITHOUT_WORKER_MATRIX = [(name, point) for name, (_, points, _) in WITHOUT_WORKER.items() for point in points]


@pytest.mark.parametrize(
    ("name", "point"), WITHOUT_WORKER_MATRIX, ids=["-".join(each) for each in WITHOUT_WORKER_MATRIX]
)
def test_kill_of_process_without_worker_loses_and_repeats_nothing(
    name: str, point: str, tmp_path: pathlib.Path, runner: ScenarioRunner
) -> None:
    """A command without an owner opens the file, records the operation and leaves its effects to the next owner."""
    operations, _, ends = WITHOUT_WORKER[name]
    preparation: list[dict[str, Any]] = [
        {"start": {"document": WAITS, "key": "start"}},
        {"await": {"waiting": "ask"}},
    ]
    steps = [*preparation, *operations, {"await": "ended"}]
    home = tmp_path / "home"

    code, _ = runner.run_steps(home, steps, upto=len(preparation))
    killed, _ = runner.run_steps(home, steps, failpoint=f"{point}:1", works=False, upto=len(steps) - 1)
    again, _ = runner.run_steps(home, steps, works=False, upto=len(steps) - 1)
    last, documents = runner.run_steps(home, steps)

    assert (code, killed, again, last) == (0, KILLED, 0, 0)
    assert (documents["it"]["status"], documents["it"]["output"]) == ends
    assert set(_ledger(home).values()) == {1}
    _audit(runner, home)


def test_scenarios_cover_every_failpoint() -> None:
    from rune.runtime.failpoint import POINTS

    covered = (
        {point for scenario in SCENARIOS.values() for point in scenario.points}
        | {"begun"}
        | set(START_POINTS)
    )
    elsewhere = {"chosen", "late"}  # in test_crash, and in test_hook_crashes of clusters
    assert set(POINTS) - covered == elsewhere
