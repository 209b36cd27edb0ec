"""What the page about triggers says, done exactly as it is written there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from datetime import datetime
from pathlib import Path

from rune.client import Client
from tests.cli.process import PATIENCE
from tests.master.running import DEADLINE
from tests.master.test_up import Up

PAGE = Path(__file__).resolve().parents[2] / "docs" / "triggers.md"


def _lines() -> str:
    section = PAGE.read_text(encoding="utf-8").split("## By hand")[1]
    found = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_lines_make_a_hook_call_it_signed_and_make_a_schedule(tmp_path: Path) -> None:
    up = Up(tmp_path)
    try:
        url = up.start("--no-examples")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", _lines()],
            env={**os.environ, "RUNE_URL": url, "no_proxy": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        assert done.stderr == ""
        with Client(url, timeout=DEADLINE) as client:
            (started,) = client.executions(workflow="orders")
            assert started.execution_id in done.stdout
            assert client.wait(started.execution_id, DEADLINE).status == "completed"
            assert client.output(started.execution_id) == 7
            (clock,) = client.triggers("minutely")
            assert clock.schedule is not None
            assert clock.schedule.next_at is not None
            assert datetime.fromisoformat(clock.schedule.next_at).second == 0
    finally:
        up.stop(signal.SIGKILL)
