"""What the page about triggers says, done exactly as it is written there."""

from __future__ import annotations

import signal
from datetime import datetime
from pathlib import Path

from rune.client import Client
from tests.acceptance.api.printing import printed
from tests.acceptance.api.running import DEADLINE
from tests.acceptance.api.test_up import Up


def test_the_lines_make_a_hook_call_it_signed_and_make_a_schedule(tmp_path: Path) -> None:
    up = Up(tmp_path)
    try:
        url = up.start("--no-examples")
        told = printed("docs/triggers.md", "By hand", url)
        with Client(url, timeout=DEADLINE) as client:
            (started,) = client.executions(workflow="orders")
            assert started.execution_id in told
            assert client.wait(started.execution_id, DEADLINE).status == "completed"
            assert client.output(started.execution_id) == 7
            (clock,) = client.triggers("minutely")
            assert clock.schedule is not None
            assert clock.schedule.next_at is not None
            assert datetime.fromisoformat(clock.schedule.next_at).second == 0
    finally:
        up.stop(signal.SIGKILL)
