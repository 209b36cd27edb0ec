"""Schedules of `rune up`, and its search for missing executions, across a kill."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from rune.client import Client
from tests.support.api_server import DEADLINE
from tests.support.cli_process import TIMEOUT_S, Rune, until
from tests.support.documents import document, node
from tests.support.forked_rune import KILLED
from tests.support.trigger_workflows import schedule_workflow
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long


def _count(client: Client) -> int:
    return len(list(client.executions(workflow="report", page=1_000)))


def test_schedule_continues_after_kill(tmp_path: Path) -> None:
    up = UpProcess(tmp_path)
    try:
        with Client(up.start("--no-examples"), timeout=DEADLINE) as client:
            client.deploy(schedule_workflow(amount=1, unit="seconds", overlap="allow", catch_up="all"))
            until(lambda: _count(client) >= 2 or None, "ticks are started")
        up.stop(signal.SIGKILL)
        with Client(up.start("--no-examples"), timeout=DEADLINE) as client:
            known = _count(client)
            until(lambda: _count(client) >= known + 2 or None, "ticks continue")
            (clock,) = client.triggers("report")
            client.enable_trigger(clock.id, enabled=False)
            times = []
            for each in client.executions(workflow="report", page=1_000):
                assert client.wait(each.execution_id, DEADLINE).status == "completed"
                times.append(client.output(each.execution_id))
            assert len(times) == len(set(times))
    finally:
        up.stop(signal.SIGKILL)


def test_missing_execution_is_handled_once_after_kill(tmp_path: Path) -> None:
    nightly = document([node("in", "input")], id="nightly", settings={"on_missing": "tell-ops"})
    told = document(
        [node("in", "input"), node("out", "output", {"value": "{{ $trigger.kind }}"})],
        "in>out",
        id="tell-ops",
    )
    crashing, up = UpProcess(tmp_path, RUNE_FAILPOINT="missed"), UpProcess(tmp_path)
    try:
        with Client(crashing.start("--no-examples"), timeout=DEADLINE) as client:
            client.deploy(told)
            client.deploy({**nightly, "settings": {"on_missing": "tell-ops", "expect_every": 2}})
        # It dies when the period is over, and what it has stored is not lost.
        assert crashing.process.wait(TIMEOUT_S) == KILLED
        path = tmp_path / "nightly.json"
        path.write_text(json.dumps(nightly))
        Rune(tmp_path).json("deploy", str(path))
        with Client(up.start("--no-examples"), timeout=DEADLINE) as client:

            def handlers() -> list[str]:
                return [each.execution_id for each in client.executions(workflow="tell-ops")]

            until(lambda: handlers() or None, "the handler is started")
            (handler,) = handlers()
            assert client.wait(handler, DEADLINE).status == "completed"
            assert client.output(handler) == "missing"
    finally:
        crashing.stop(signal.SIGKILL)
        up.stop(signal.SIGKILL)
