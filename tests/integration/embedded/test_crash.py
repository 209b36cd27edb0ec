"""Killed at every named point, started again: the execution goes on, and only in one window may an effect repeat."""

from __future__ import annotations

import json
import pathlib
from collections import Counter
from collections.abc import Iterator

import pytest

from rune.runtime.failpoint import WALK
from tests.integration.embedded.forks import KILLED, Forks
from tests.integration.embedded.shapes import PAYLOAD, SHAPES, Shape
from tests.support.whole import WHOLE

# A point that a shape does not pass: nothing dies there, and the run just ends.
NOT_PASSED = {(shape, "chosen") for shape in SHAPES if shape != "race"}
NOT_PASSED |= {(shape, "fired") for shape in SHAPES if shape not in ("wait", "retry")}


def _passes(most: int, number: int) -> tuple[int, ...]:
    """At the how manieth pass of a point to die: at each, or at one of them, another for the next point and shape."""
    return tuple(range(1, most + 1)) if WHOLE else (1 + number % most,)


@pytest.fixture
def forks(tmp_path: pathlib.Path) -> Iterator[Forks]:
    with Forks(tmp_path) as asked:
        yield asked


def _crash_and_go_on(
    forks: Forks, folder: pathlib.Path, shape: Shape, point: str, times: int, *options: str
) -> tuple[int, Counter[str]]:
    """Run until it dies, run again, hold it against what must come out. How it died, and the ledger."""
    document = folder / "workflow.json"
    document.write_text(json.dumps(shape.document))
    ledger = folder / f"ledger-{times}"
    ledger.touch()
    environment = {"RUNE_HOME": str(folder), "RUNE_SLOTS": "1", "RUNE_TEST_LEDGER": str(ledger)}
    command = [
        "run",
        str(document),
        "--json",
        "--key",
        f"k{times}",
        "--nodes",
        "tests.integration.embedded.ledger_nodes",
    ]
    command += ["--input", json.dumps(PAYLOAD), *options, *(["--fake-time"] if shape.fake_time else [])]

    died, _, _ = forks.rune(*command, **environment, RUNE_FAILPOINT=f"{point}:{times}")
    code, out, err = forks.rune(*command, **environment, RUNE_FAILPOINT="")

    assert code == 0, err
    told = json.loads(out)
    assert (told["status"], told["output"]) == ("completed", shape.output)
    calls = Counter(ledger.read_text().split())
    assert {key.split(":", 1)[0] for key in calls} <= {told["execution_id"]}, "it was another execution"
    return died, calls


def _check_journal(forks: Forks, folder: pathlib.Path, executions: int) -> None:
    """One execution per key, and nothing in the file that the rules could not have written."""
    environment = {"RUNE_HOME": str(folder), "RUNE_NODES": "tests.integration.embedded.ledger_nodes"}
    code, out, err = forks.rune("audit", "--all", "--json", **environment)
    assert code == 0, out + err
    report = json.loads(out)
    assert (report["executions"], report["violations"]) == (executions, 0)


@pytest.mark.parametrize("point", WALK)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_kill_at_any_point_loses_and_doubles_nothing(
    shape: str, point: str, tmp_path: pathlib.Path, forks: Forks
) -> None:
    tried = 0
    killed = False
    for times in dict.fromkeys((*_passes(3, list(SHAPES).index(shape) + WALK.index(point)), 1)):
        died, calls = _crash_and_go_on(forks, tmp_path, SHAPES[shape], point, times)
        _check_effects(SHAPES[shape], calls, repeatable=point == "ran")
        tried += 1
        killed = killed or died == KILLED
        assert died in (0, KILLED)
        if (died == KILLED) is not WHOLE:
            break
    assert killed or (shape, point) in NOT_PASSED, "the point was never passed"
    _check_journal(forks, tmp_path, tried)


@pytest.mark.parametrize("point", ["journaled", "applied", "sent"])
@pytest.mark.parametrize("shape", ["pure chain", "diamond", "split"])
def test_the_same_where_every_node_travels(
    shape: str, point: str, tmp_path: pathlib.Path, forks: Forks
) -> None:
    passes = _passes(4, len(shape) + len(point))
    for times in passes:
        died, calls = _crash_and_go_on(forks, tmp_path, SHAPES[shape], point, times, "--no-in-place")
        assert died == KILLED
        _check_effects(SHAPES[shape], calls, repeatable=False)
    _check_journal(forks, tmp_path, len(passes))


def _check_effects(shape: Shape, calls: Counter[str], *, repeatable: bool) -> None:
    """Each effect at least once; twice only where it was made and nobody could know."""
    twice = [key for key, count in calls.items() if count > 1]
    assert len(twice) <= (1 if repeatable else 0), calls
    assert max(calls.values(), default=0) <= 2
    seen = Counter(key.split(":", 1)[1].split("@")[0] for key in calls)
    assert {name: seen[name] for name in shape.effects} == shape.effects
