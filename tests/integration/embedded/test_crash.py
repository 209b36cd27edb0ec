"""A run killed at any failpoint resumes, and only a kill directly after an effect may repeat it."""

from __future__ import annotations

import json
import pathlib
from collections import Counter
from collections.abc import Iterator

import pytest

from rune.runtime.failpoint import EXECUTION_POINTS
from tests.support.forked_rune import KILLED, ForkedRune
from tests.support.ledger_workflows import PAYLOAD, SHAPES, Shape
from tests.support.whole import WHOLE

pytestmark = pytest.mark.long

# Failpoints that a shape does not pass, so that the run is not killed.
NOT_PASSED = {(shape, "chosen") for shape in SHAPES if shape != "race"}
NOT_PASSED |= {(shape, "fired") for shape in SHAPES if shape not in ("wait", "retry")}


def _passes(most: int, number: int) -> tuple[int, ...]:
    """The passes of a failpoint at which to kill: all of them, or one that varies by failpoint and shape."""
    return tuple(range(1, most + 1)) if WHOLE else (1 + number % most,)


@pytest.fixture
def forked(tmp_path: pathlib.Path) -> Iterator[ForkedRune]:
    with ForkedRune(tmp_path) as made:
        yield made


def _crash_and_resume(
    forked: ForkedRune, folder: pathlib.Path, shape: Shape, point: str, times: int, *options: str
) -> tuple[int, Counter[str]]:
    """Run until the kill, run again and check the result; return the first exit code and the ledger."""
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
        "tests.support.ledger_nodes",
    ]
    command += ["--input", json.dumps(PAYLOAD), *options, *(["--fake-time"] if shape.fake_time else [])]

    exit_code, _, _ = forked.rune(*command, **environment, RUNE_FAILPOINT=f"{point}:{times}")
    code, out, err = forked.rune(*command, **environment, RUNE_FAILPOINT="")

    assert code == 0, err
    result = json.loads(out)
    assert (result["status"], result["output"]) == ("completed", shape.output)
    calls = Counter(ledger.read_text().split())
    assert {key.split(":", 1)[0] for key in calls} <= {result["execution_id"]}, "it was another execution"
    return exit_code, calls


def _check_journal(forked: ForkedRune, folder: pathlib.Path, executions: int) -> None:
    """There is one execution per key, and the audit finds no violation."""
    environment = {"RUNE_HOME": str(folder), "RUNE_NODES": "tests.support.ledger_nodes"}
    code, out, err = forked.rune("verify", "--all", "--json", **environment)
    assert code == 0, out + err
    report = json.loads(out)
    assert (report["executions"], report["violations"]) == (executions, 0)


@pytest.mark.parametrize("point", EXECUTION_POINTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_kill_at_any_failpoint_loses_and_repeats_nothing(
    shape: str, point: str, tmp_path: pathlib.Path, forked: ForkedRune
) -> None:
    runs = 0
    killed = False
    for times in dict.fromkeys((*_passes(3, list(SHAPES).index(shape) + EXECUTION_POINTS.index(point)), 1)):
        exit_code, calls = _crash_and_resume(forked, tmp_path, SHAPES[shape], point, times)
        _check_effects(SHAPES[shape], calls, repeatable=point == "ran")
        runs += 1
        killed = killed or exit_code == KILLED
        assert exit_code in (0, KILLED)
        if (exit_code == KILLED) is not WHOLE:
            break
    assert killed or (shape, point) in NOT_PASSED, "the failpoint was never passed"
    _check_journal(forked, tmp_path, runs)


@pytest.mark.parametrize("point", ["journaled", "applied", "sent"])
@pytest.mark.parametrize("shape", ["pure chain", "diamond", "split"])
def test_kill_without_in_place_execution_repeats_nothing(
    shape: str, point: str, tmp_path: pathlib.Path, forked: ForkedRune
) -> None:
    passes = _passes(4, len(shape) + len(point))
    for times in passes:
        exit_code, calls = _crash_and_resume(forked, tmp_path, SHAPES[shape], point, times, "--no-in-place")
        assert exit_code == KILLED
        _check_effects(SHAPES[shape], calls, repeatable=False)
    _check_journal(forked, tmp_path, len(passes))


def _check_effects(shape: Shape, calls: Counter[str], *, repeatable: bool) -> None:
    """Each effect happened at least once, and twice only if the kill came between effect and journal."""
    repeated = [key for key, count in calls.items() if count > 1]
    assert len(repeated) <= (1 if repeatable else 0), calls
    assert max(calls.values(), default=0) <= 2
    seen = Counter(key.split(":", 1)[1].split("@")[0] for key in calls)
    assert {name: seen[name] for name in shape.effects} == shape.effects
