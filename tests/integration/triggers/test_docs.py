"""Commands of docs/triggers.md."""

from __future__ import annotations

import signal
from datetime import datetime
from pathlib import Path

from rune.client import Client
from tests.support.api_server import DEADLINE
from tests.support.documented_commands import run_documented_commands
from tests.support.up_process import UpProcess


def test_documented_trigger_commands_work(tmp_path: Path) -> None:
    up = UpProcess(tmp_path)
    try:
        url = up.start("--no-examples")
        output = run_documented_commands("docs/triggers.md", "By hand", url)
        with Client(url, timeout=DEADLINE) as client:
            (started,) = client.executions(workflow="orders")
            assert started.execution_id in output
            assert client.wait(started.execution_id, DEADLINE).status == "completed"
            assert client.output(started.execution_id) == 7
            (clock,) = client.triggers("minutely")
            assert clock.schedule is not None
            assert clock.schedule.next_at is not None
            assert datetime.fromisoformat(clock.schedule.next_at).second == 0
    finally:
        up.stop(signal.SIGKILL)
