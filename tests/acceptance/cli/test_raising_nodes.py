"""A node that raises what would end a process ends only its attempt, and a process without its engine ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rune.cli.output import UNEXPECTED
from tests.support.cli_process import TIMEOUT_S, Rune, until
from tests.support.documents import document, node
from tests.support.paths import ROOT, SOURCE, python_path

NODES = "tests.integration.embedded.bad_nodes"
TYPES = {
    "interrupt": "KeyboardInterrupt",
    "generator exit": "GeneratorExit",
    "exit": "SystemExit",
    "cancelled": "CancelledError",
    "odd": "CustomBaseException",
    "no text": "NoTextError",
}
CALLS = {f"{kind} {way}": (kind, way) for kind in ("async", "thread", "pure") for way in TYPES}
RAISES = document(
    [
        node("in", "input"),
        *(
            node(f"{kind}-{number}", f"bad.{kind}", {"way": way}, error="ignore")
            for number, (kind, way) in enumerate(CALLS.values())
        ),
    ],
    *(f"in>{kind}-{number}" for number, (kind, _) in enumerate(CALLS.values())),
    id="raises",
)
WAITS = document(
    [node("in", "input"), node("nap", "wait", parameters={"amount": 3, "unit": "hours"})],
    "in>nap",
    id="waits",
)
BROKEN = """
import asyncio

from rune.nodes.custom import node
from rune.runtime.maintenance.scheduler import Scheduler


async def fail(_):
    raise {error}


Scheduler.run = fail


@node("broken.none")
def none() -> None:
    pass
"""


def test_exceptions_that_end_a_process_fail_only_their_attempt(tmp_path: Path) -> None:
    rune = Rune(tmp_path / "home", PYTHONPATH=python_path(SOURCE, ROOT))
    (tmp_path / "raises.json").write_text(json.dumps(RAISES))
    with rune.begin("run", str(tmp_path / "raises.json"), "--nodes", NODES, "--json") as process:
        out, err = process.communicate(timeout=TIMEOUT_S)

    assert process.returncode == 0, out + err
    ran = {each["node_id"]: each for each in json.loads(out)["nodes"]}
    for number, (kind, way) in enumerate(CALLS.values()):
        each = ran[f"{kind}-{number}"]
        assert (each["status"], each["attempts"], each["error"]["code"]) == ("failed", 1, "NODE_ERROR"), (
            kind,
            way,
        )
        assert each["error"]["message"].startswith(f"{TYPES[way]}: "), (kind, way)
    assert "never retrieved" not in err


ENDS = {
    "interrupted": ("failed", None),
    "exiting": ("failed", None),
    "called back": ("success", "called back"),
    "stopping": ("success", "stopping"),
}


def test_node_that_stops_the_event_loop_does_not_end_the_process(tmp_path: Path) -> None:
    nodes = [node(f"n{at}", "bad.loop", {"way": way}, error="ignore") for at, way in enumerate(ENDS)]
    raw = document(
        [node("in", "input"), *nodes, node("last", "output", {"value": "done"})],
        "in>n0",
        *(f"n{at}>n{at + 1}" for at in range(len(ENDS) - 1)),
        f"n{len(ENDS) - 1}>last",
        id="loops",
    )
    (tmp_path / "loops.json").write_text(json.dumps(raw))
    rune = Rune(tmp_path / "home", PYTHONPATH=python_path(SOURCE, ROOT))
    with rune.begin("run", str(tmp_path / "loops.json"), "--nodes", NODES, "--json") as process:
        out, err = process.communicate(timeout=TIMEOUT_S)

    assert process.returncode == 0, out + err
    ran = {each["node_id"]: each for each in json.loads(out)["nodes"]}
    for at, ended in enumerate(ENDS.values()):
        each = ran[f"n{at}"]
        value = each["output"] if each["status"] == "success" else None
        assert (each["status"], value) == ended, each
    assert ran["n0"]["error"]["message"] == "KeyboardInterrupt: "
    assert ran["n1"]["error"]["message"] == "SystemExit: 7"
    assert json.loads(out)["output"] == "done"


@pytest.mark.parametrize("kind", ["stubborn", "deaf"])
def test_node_that_ignores_its_cancellation_does_not_keep_the_process(kind: str, tmp_path: Path) -> None:
    parameters = {"way": "event"} if kind == "stubborn" else {}
    raw = document([node("in", "input"), node("a", f"bad.{kind}", parameters)], "in>a", id="stays")
    (tmp_path / "stays.json").write_text(json.dumps(raw))
    rune = Rune(tmp_path / "home", PYTHONPATH=python_path(SOURCE, ROOT), RUNE_GRACE="0")
    command = ("run", str(tmp_path / "stays.json"), "--nodes", NODES, "--id", "stays-1")
    with rune.begin(*command) as process:
        until(lambda: is_running(rune, "stays-1"), "the node runs")
        process.terminate()
        _, err = process.communicate(timeout=60)

    assert process.returncode == 143, err
    assert "stays-1 resumes with the next `rune run`" in err


def is_running(rune: Rune, execution: str) -> bool | None:
    """Return True if a node runs, else None."""
    found = rune("explain", execution) if (rune.home / "rune.db").exists() else None
    return True if found is not None and "is running" in found.stdout else None


@pytest.mark.parametrize("error", ["MemoryError('none left')", "GeneratorExit()", "asyncio.CancelledError()"])
def test_process_ends_if_a_task_of_its_engine_ends(error: str, tmp_path: Path) -> None:
    (tmp_path / "waits.json").write_text(json.dumps(WAITS))
    (tmp_path / "broken_nodes.py").write_text(BROKEN.format(error=error))
    rune = Rune(tmp_path / "home", PYTHONPATH=python_path(SOURCE, tmp_path))
    with rune.begin("run", str(tmp_path / "waits.json"), "--nodes", "broken_nodes") as process:
        _, err = process.communicate(timeout=TIMEOUT_S)

    assert process.returncode == UNEXPECTED, err
    assert "a background task of this process failed" in err
    assert "Traceback" not in err.rpartition("rune: ")[2]
