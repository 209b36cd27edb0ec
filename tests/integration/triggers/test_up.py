"""`rune up` keeps time by itself, also after it was killed."""

from __future__ import annotations

import signal
from pathlib import Path

from rune.client import Client
from tests.acceptance.api.running import DEADLINE
from tests.acceptance.api.test_up import Up
from tests.acceptance.cli.process import until
from tests.integration.triggers.helping import scheduled


def _count(client: Client) -> int:
    return len(list(client.executions(workflow="report", page=1_000)))


def test_a_schedule_goes_on_after_a_kill(tmp_path: Path) -> None:
    up = Up(tmp_path)
    try:
        with Client(up.start("--no-examples"), timeout=DEADLINE) as client:
            client.deploy(scheduled(amount=1, unit="seconds", overlap="allow", catch_up="all"))
            until(lambda: _count(client) >= 2 or None, "ticks are started")
        up.stop(signal.SIGKILL)
        with Client(up.start("--no-examples"), timeout=DEADLINE) as client:
            known = _count(client)
            until(lambda: _count(client) >= known + 2 or None, "they go on")
            (clock,) = client.triggers("report")
            client.enable_trigger(clock.id, enabled=False)
            times = []
            for each in client.executions(workflow="report", page=1_000):
                assert client.wait(each.execution_id, DEADLINE).status == "completed"
                times.append(client.output(each.execution_id))
            assert len(times) == len(set(times))
    finally:
        up.stop(signal.SIGKILL)
