"""Schedules of `rune up` across a kill."""

from __future__ import annotations

import signal
from pathlib import Path

from rune.client import Client
from tests.support.api_server import DEADLINE
from tests.support.cli_process import until
from tests.support.trigger_workflows import schedule_workflow
from tests.support.up_process import UpProcess


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
