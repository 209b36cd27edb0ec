"""The shell commands of the pages about HTTP do what the pages state."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rune.client import Client
from rune.errors import RuneError
from tests.support.cli_process import TIMEOUT_S, Rune
from tests.support.followed_page import follow


def _documents(line: str) -> Iterator[Any]:
    """The JSON documents of a line: curl prints no newline between responses."""
    while line.startswith("{"):
        found, end = json.JSONDecoder().raw_decode(line)
        yield found
        line = line[end:]


def test_curl_tutorial_cancels_the_execution_that_it_follows(tmp_path: Path) -> None:
    def inspect(url: str, result: str) -> None:
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

    follow("docs/start/with-curl.md", tmp_path, inspect)


def test_guide_to_keys_hooks_schedules_starts_by_a_signed_request(tmp_path: Path) -> None:
    def inspect(url: str, output: str) -> None:
        with Client(url) as locked, pytest.raises(RuneError, match="key"):
            list(locked.executions(workflow="orders"))
        key = Rune(tmp_path / ".rune").json("keys", "create", "reader", "--role", "viewer")["key"]
        with Client(url, key=key) as client:
            (started,) = client.executions(workflow="orders")
            assert started.execution_id in output
            assert client.wait(started.execution_id, TIMEOUT_S).status == "completed"
            assert client.output(started.execution_id) == 7
            (clock,) = client.triggers("minutely")
            assert clock.schedule is not None
            assert clock.schedule.next_at is not None
            result = re.findall(r'"next_at":"([^"]+)"', output)
            assert result, output
            assert result[-1] <= clock.schedule.next_at  # a minute may have passed

    follow("docs/guides/author/keys-hooks-schedules.md", tmp_path, inspect)


def test_guide_to_triggers_starts_by_a_signed_request_and_by_the_clock(tmp_path: Path) -> None:
    def inspect(url: str, output: str) -> None:
        with Client(url) as client:
            (started,) = client.executions(workflow="orders")
            assert started.execution_id in output
            assert client.wait(started.execution_id, TIMEOUT_S).status == "completed"
            assert client.output(started.execution_id) == 7
            (clock,) = client.triggers("minutely")
            assert clock.enabled is False
            first = re.search(r'"next_at":"([^"]+)"', output)
            assert first is not None
            assert datetime.fromisoformat(first[1]).second == 0

    follow("docs/triggers.md", tmp_path, inspect)
