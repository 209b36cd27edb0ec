"""The shell commands of the README work as written."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rune.client import Client
from rune.errors import RuneError
from tests.support.cli_process import PATIENCE, Rune
from tests.support.documented_commands import run_documented_commands
from tests.support.up_process import UpProcess


def _documents(line: str) -> Iterator[Any]:
    """The JSON documents of a line: curl prints no newline between responses."""
    while line.startswith("{"):
        found, end = json.JSONDecoder().raw_decode(line)
        yield found
        line = line[end:]


def test_readme_curl_section_works_as_written(tmp_path: Path) -> None:
    up = UpProcess(tmp_path)
    try:
        url = up.start()
        result = run_documented_commands("README.md", "With curl alone", url)
        documents = [each for line in result.splitlines() for each in _documents(line)]
        with Client(url) as client:
            (execution,) = client.executions(workflow="greet")
        assert execution.status == "cancelled"
        assert (documents[0]["workflow_id"], documents[0]["version"]) == ("greet", 1)
        assert any(
            each.get("execution_id") == execution.execution_id and "waiting" in each for each in documents
        )
        assert any(each.get("status") == "cancelled" and each.get("changed") for each in documents)
        numbers = [int(each) for each in re.findall(r"^id: ?(\d+)$", result, re.MULTILINE)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert '"kind":"execution.cancelled"' in result
    finally:
        up.stop(signal.SIGKILL)


def test_readme_keys_hooks_schedules_section_works_as_written(tmp_path: Path) -> None:
    up = UpProcess(tmp_path)
    try:
        url = up.start()
        output = run_documented_commands("README.md", "Keys, hooks, schedules", url)
        with Client(url) as locked, pytest.raises(RuneError, match="key"):
            list(locked.executions(workflow="orders"))
        key = Rune(tmp_path).json("keys", "create", "reader", "--role", "viewer")["key"]
        with Client(url, key=key) as client:
            (started,) = client.executions(workflow="orders")
            assert started.execution_id in output
            assert client.wait(started.execution_id, PATIENCE).status == "completed"
            assert client.output(started.execution_id) == 7
            (clock,) = client.triggers("minutely")
            assert clock.schedule is not None
            assert clock.schedule.next_at is not None
            result = re.findall(r'"next_at":"([^"]+)"', output)
            assert result, output
            assert result[-1] <= clock.schedule.next_at  # a minute may have passed
    finally:
        up.stop(signal.SIGKILL)
