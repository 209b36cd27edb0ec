"""An execution that waits for hours: seen by others, stopped, killed, and gone on with."""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.cli.process import PATIENCE, Rune, until
from tests.unit.core.documents import document, keep, node

HOURS = document(
    [
        node("start", "input"),
        keep("quick", 1),
        node("nap", "wait", parameters={"amount": 3, "unit": "hours"}),
        node("both", "merge", parameters={"mode": "object", "timeout": 36_000}),
    ],
    "start>quick",
    "start>nap",
    "quick>both",
    "nap>both",
    id="hours",
)
ONE = document([node("a", "input")], id="one")


@pytest.fixture
def rune(tmp_path: pathlib.Path) -> Rune:
    for raw in (HOURS, ONE):
        (tmp_path / f"{raw['id']}.json").write_text(json.dumps(raw))
    return Rune(tmp_path / "home")


@pytest.fixture
def waiting(rune: Rune, tmp_path: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    """A `rune run` in another process, whose execution has begun to wait."""
    with rune.begin("run", str(tmp_path / "hours.json"), "--id", "hours-1", "--label", "a=b") as process:
        try:
            until(lambda: _nap(rune) if rune.home.exists() else None, "the wait is in the file")
            yield process
        finally:
            process.kill()


def _nap(rune: Rune) -> dict[str, Any] | None:
    """What is said of the wait, if it is there."""
    done = rune("explain", "hours-1", "--json")
    found = json.loads(done.stdout).get("waiting", []) if done.returncode == 0 else []
    return next((each for each in found if each["node"] == "nap" and each["due"]), None)


def test_others_can_look_at_it_while_it_runs(rune: Rune, waiting: subprocess.Popen[str]) -> None:
    (listed,) = rune.json("list", "--status", "running")["executions"]
    shown = rune.json("show", "hours")
    told = rune.json("explain", "hours")
    join = next(each for each in told["waiting"] if each["node"] == "both")

    assert (listed["execution_id"], listed["completed_at"]) == ("hours-1", None)
    assert (shown["status"], shown["output"], shown["completed_at"]) == ("running", None, None)
    assert {each["node_id"] for each in shown["nodes"]} == {"start", "quick"}
    assert told["owner"] == waiting.pid
    assert (len(join["arrived"]), len(join["missing"]), join["skipped"]) == (1, 1, [])
    assert join["due"] > shown_at(shown)
    assert rune.json("audit", "--all")["totals"]["open"] == 1


def shown_at(document: dict[str, Any]) -> int:
    from datetime import datetime

    return int(datetime.fromisoformat(document["started_at"]).timestamp() * 1000)


def test_others_can_read_about_it_while_it_runs(rune: Rune, waiting: subprocess.Popen[str]) -> None:
    shown = rune("show", "hours").stdout
    told = rune("explain", "hours").stdout
    owner = {each["check"]: each["found"] for each in rune.json("doctor")["checks"]}["owner"]

    assert "running hours-1 (hours)" in shown
    for text in (shown, told):
        assert "waits for its timer" in text
        assert "times out in" in text
    assert owner == f"process {waiting.pid}"
    assert "No process is running it" not in told


def test_a_watch_follows_it(rune: Rune, waiting: subprocess.Popen[str]) -> None:
    with rune.begin("watch", "hours", "--json") as watch:
        assert watch.stdout is not None
        events = [json.loads(watch.stdout.readline()) for _ in range(3)]
        watch.send_signal(signal.SIGINT)
        try:
            code = watch.wait(PATIENCE)
        finally:
            watch.kill()

    assert [each["number"] for each in events] == [1, 2, 3]
    assert {each["kind"] for each in events[1:]} == {"node.success", "node.waiting"}
    assert code == 130


@pytest.mark.parametrize(("asked", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_it_cleanly(
    rune: Rune, waiting: subprocess.Popen[str], asked: signal.Signals, code: int
) -> None:
    waiting.send_signal(asked)
    _, err = waiting.communicate(timeout=PATIENCE)

    assert waiting.returncode == code
    assert "hours-1 resumes with the next `rune run`" in err
    assert "Traceback" not in err
    assert "No process is running it now" in rune("explain", "hours").stdout
    assert rune.json("list")["executions"][0]["status"] == "running"


def test_a_stopped_run_still_prints_its_document(rune: Rune, tmp_path: pathlib.Path) -> None:
    with rune.begin("run", str(tmp_path / "hours.json"), "--id", "hours-1", "--json") as process:
        until(lambda: _nap(rune) if rune.home.exists() else None, "the wait is in the file")
        process.terminate()
        out, _ = process.communicate(timeout=PATIENCE)

    assert (json.loads(out)["execution_id"], json.loads(out)["status"]) == ("hours-1", "running")


def test_after_a_kill_the_next_run_of_anything_goes_on_with_it(
    rune: Rune, waiting: subprocess.Popen[str], tmp_path: pathlib.Path
) -> None:
    before = _nap(rune)
    waiting.kill()
    waiting.wait(PATIENCE)

    assert rune.json("list", "--status", "running")["executions"][0]["execution_id"] == "hours-1"
    assert rune("run", str(tmp_path / "one.json")).returncode == 0
    assert _nap(rune) == before
    assert rune.json("audit", "--all")["violations"] == 0


def test_a_run_under_the_same_key_waits_for_the_execution_of_before(
    rune: Rune, tmp_path: pathlib.Path
) -> None:
    raw = {**HOURS, "id": "short", "nodes": [*HOURS["nodes"][:2], _seconds(), HOURS["nodes"][3]]}
    path = tmp_path / "short.json"
    path.write_text(json.dumps(raw))
    with rune.begin("run", str(path), "--key", "k", "--id", "first") as process:
        until(lambda: _begun(rune), "it was accepted")
        process.kill()
        process.wait(PATIENCE)

    told = rune.json("run", str(path), "--key", "k")

    assert (told["execution_id"], told["status"]) == ("first", "completed")
    assert set(told["output"]["both"]) == {"quick", "nap"}


def _seconds() -> dict[str, Any]:
    return node("nap", "wait", parameters={"amount": 1, "unit": "seconds"})


def _begun(rune: Rune) -> bool | None:
    done = rune("list", "--json")
    return True if done.returncode == 0 and json.loads(done.stdout)["executions"] else None
