"""An execution that waits for hours is read by other processes, stopped, killed and resumed."""

from __future__ import annotations

import json
import pathlib
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.cli_process import TIMEOUT_S, Rune, until
from tests.support.documents import document, edit, node

HOURS = document(
    [
        node("start", "input"),
        edit("quick", 1),
        node("nap", "wait", parameters={"amount": 3, "unit": "hours"}),
        node("both", "merge", parameters={"mode": "object", "timeout": 36_000}),
    ],
    "start>quick",
    "start>nap",
    "quick>both",
    "nap>both",
    id="hours",
    settings={"expect_within": 7200},
)
ONE = document([node("a", "input")], id="one")


@pytest.fixture
def rune(tmp_path: pathlib.Path) -> Rune:
    for raw in (HOURS, ONE):
        (tmp_path / f"{raw['id']}.json").write_text(json.dumps(raw))
    return Rune(tmp_path / "home")


@pytest.fixture
def waiting(rune: Rune, tmp_path: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    """Start `rune run` in another process and wait until its execution waits."""
    with rune.begin("run", str(tmp_path / "hours.json"), "--id", "hours-1", "--label", "a=b") as process:
        try:
            until(lambda: _nap(rune) if (rune.home / "rune.db").exists() else None, "the wait is stored")
            yield process
        finally:
            process.kill()


def _nap(rune: Rune) -> dict[str, Any] | None:
    """The entry of the waiting node in `rune explain`, if there is one."""
    done = rune("explain", "hours-1", "--json")
    found = json.loads(done.stdout).get("waiting", []) if done.returncode == 0 else []
    return next((each for each in found if each["node"] == "nap" and each["due"]), None)


def test_running_execution_is_readable_as_json(rune: Rune, waiting: subprocess.Popen[str]) -> None:
    (listed,) = rune.json("list", "--status", "running")["executions"]
    shown = rune.json("show", "hours")
    result = rune.json("explain", "hours")
    join = next(each for each in result["waiting"] if each["node"] == "both")

    assert (listed["execution_id"], listed["completed_at"]) == ("hours-1", None)
    assert (shown["status"], shown["output"], shown["completed_at"]) == ("running", None, None)
    assert {each["node_id"] for each in shown["nodes"]} == {"start", "quick"}
    assert result["owner"] == waiting.pid
    assert (len(join["arrived"]), len(join["missing"]), join["skipped"]) == (1, 1, [])
    assert join["due"] > started_at(shown)
    assert result["expected_by"] == started_at(shown) + 7_200_000
    assert rune.json("verify", "--all")["totals"]["open"] == 1


def started_at(document: dict[str, Any]) -> int:
    from datetime import datetime

    return int(datetime.fromisoformat(document["started_at"]).timestamp() * 1000)


def test_running_execution_is_readable_as_text(rune: Rune, waiting: subprocess.Popen[str]) -> None:
    shown = rune("show", "hours").stdout
    result = rune("explain", "hours").stdout
    owner = {each["check"]: each["found"] for each in rune.json("doctor")["checks"]}["owner"]

    assert "running hours-1 (hours)" in shown
    for text in (shown, result):
        assert "waits for its timer" in text
        assert "times out in" in text
    assert owner == f"process {waiting.pid}"
    assert "No process is running it" not in result
    assert "It will be late in 1 h 59 min (" in result


def test_explanation_tells_since_when_execution_is_late(rune: Rune, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "late.json"
    path.write_text(json.dumps({**HOURS, "settings": {"expect_within": 0.001}}))
    with rune.begin("run", str(path), "--id", "hours-1") as process:
        try:
            until(lambda: _nap(rune) if (rune.home / "rune.db").exists() else None, "the wait is stored")
            assert "It is late since " in rune("explain", "hours").stdout
        finally:
            process.kill()


def test_watch_follows_running_execution(rune: Rune, waiting: subprocess.Popen[str]) -> None:
    with rune.begin("watch", "hours", "--json") as watch:
        assert watch.stdout is not None
        events = [json.loads(watch.stdout.readline()) for _ in range(3)]
        watch.send_signal(signal.SIGINT)
        try:
            code = watch.wait(TIMEOUT_S)
        finally:
            watch.kill()

    assert [each["number"] for each in events] == [1, 2, 3]
    assert {each["kind"] for each in events[1:]} == {"node.success", "node.waiting"}
    assert code == 130


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_os_signal_stops_run_cleanly(
    rune: Rune, waiting: subprocess.Popen[str], sent: signal.Signals, code: int
) -> None:
    waiting.send_signal(sent)
    _, err = waiting.communicate(timeout=TIMEOUT_S)

    assert waiting.returncode == code
    assert "hours-1 resumes with the next `rune run`" in err
    assert "Traceback" not in err
    assert "No process is running it now" in rune("explain", "hours").stdout
    assert rune.json("list")["executions"][0]["status"] == "running"


def test_stopped_run_prints_document(rune: Rune, tmp_path: pathlib.Path) -> None:
    with rune.begin("run", str(tmp_path / "hours.json"), "--id", "hours-1", "--json") as process:
        until(lambda: _nap(rune) if (rune.home / "rune.db").exists() else None, "the wait is stored")
        process.terminate()
        out, _ = process.communicate(timeout=TIMEOUT_S)

    assert (json.loads(out)["execution_id"], json.loads(out)["status"]) == ("hours-1", "running")


def test_next_run_resumes_killed_execution(
    rune: Rune, waiting: subprocess.Popen[str], tmp_path: pathlib.Path
) -> None:
    before = _nap(rune)
    waiting.kill()
    waiting.wait(TIMEOUT_S)

    assert rune.json("list", "--status", "running")["executions"][0]["execution_id"] == "hours-1"
    assert rune("run", str(tmp_path / "one.json")).returncode == 0
    assert _nap(rune) == before
    assert rune.json("verify", "--all")["violations"] == 0


def test_run_with_same_key_waits_for_existing_execution(rune: Rune, tmp_path: pathlib.Path) -> None:
    raw = {**HOURS, "id": "short", "nodes": [*HOURS["nodes"][:2], _seconds(), HOURS["nodes"][3]]}
    path = tmp_path / "short.json"
    path.write_text(json.dumps(raw))
    with rune.begin("run", str(path), "--key", "k", "--id", "first") as process:
        until(lambda: _accepted(rune), "it was accepted")
        process.kill()
        process.wait(TIMEOUT_S)

    result = rune.json("run", str(path), "--key", "k")

    assert (result["execution_id"], result["status"]) == ("first", "completed")
    assert set(result["output"]["both"]) == {"quick", "nap"}


def _seconds() -> dict[str, Any]:
    return node("nap", "wait", parameters={"amount": 1, "unit": "seconds"})


def _accepted(rune: Rune) -> bool | None:
    done = rune("list", "--json")
    return True if done.returncode == 0 and json.loads(done.stdout)["executions"] else None
