"""What the README says about curl, done exactly as it is written there."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rune.client import Client
from tests.cli.process import PATIENCE
from tests.master.test_up import Up

README = Path(__file__).resolve().parents[2] / "README.md"


def _lines() -> str:
    section = README.read_text(encoding="utf-8").split("## With curl alone")[1]
    found = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


def _documents(line: str) -> Iterator[Any]:
    """What is JSON in a line: curl ends no line, so one answer may follow another."""
    while line.startswith("{"):
        found, end = json.JSONDecoder().raw_decode(line)
        yield found
        line = line[end:]


def test_the_lines_with_curl_create_start_watch_explain_and_cancel(tmp_path: Path) -> None:
    up = Up(tmp_path)
    try:
        url = up.start()
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", _lines()],
            env={**os.environ, "RUNE_URL": url, "no_proxy": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        assert done.stderr == ""
        documents = [each for line in done.stdout.splitlines() for each in _documents(line)]
        with Client(url) as client:
            (execution,) = client.executions(workflow="greet")
        assert execution.status == "cancelled"
        assert (documents[0]["workflow_id"], documents[0]["version"]) == ("greet", 1)
        assert any(
            each.get("execution_id") == execution.execution_id and "waiting" in each for each in documents
        )
        assert any(each.get("status") == "cancelled" and each.get("changed") for each in documents)
        numbers = [int(each) for each in re.findall(r"^id: ?(\d+)$", done.stdout, re.MULTILINE)]
        assert numbers == list(range(1, len(numbers) + 1))
        assert '"kind":"execution.cancelled"' in done.stdout
    finally:
        up.stop(signal.SIGKILL)
