"""An execution that freezes a server does not freeze it again with each restart."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.cli_process import Rune, until
from tests.support.documents import document, node
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

NODES = "tests.support.blocking_nodes"
BLOCKS = document([node("in", "input"), node("stuck", "block.loop")], "in>stuck", id="blocks")
PLAIN = document([node("in", "input"), node("out", "output", {"value": 1})], "in>out", id="plain")


def started(url: str) -> str:
    """Deploy the workflows and start the one that blocks; the server may not answer any more."""
    with httpx.Client(base_url=f"{url}/api/v1", timeout=30, trust_env=False) as http:
        for each in (BLOCKS, PLAIN):
            assert http.post("/workflows", json=each).status_code in (200, 201)
        id = "x019a6c5f2a7c8f00d1e2f3a4b5c"
        return str(
            http.post("/workflows/blocks/executions", json={"input": {}}).json().get("execution_id", id)
        )


def marks(home: Path) -> Any:
    file = home / "rune.db-blocked"
    return json.loads(file.read_text()) if file.exists() else {"blocks": {}, "quarantined": {}}


def noted(home: Path, execution: str, count: int) -> bool | None:
    return marks(home)["blocks"].get(execution) == count or None


def answers(url: str, path: str) -> Any:
    return httpx.get(f"{url}{path}", timeout=30, trust_env=False).json()


def check_quarantined(home: Path, url: str, execution: str, reason: str) -> None:
    """The server works, and everything that reports on it names the execution."""
    rune = Rune(home, RUNE_NODES=NODES)
    assert answers(url, "/readyz")["quarantined"] == 1
    ran = httpx.post(
        f"{url}/api/v1/workflows/plain/executions?wait=30", json={"input": {}}, timeout=60, trust_env=False
    )
    assert ran.json()["execution"]["status"] == "completed"
    assert [each["status"] for each in rune.json("list", "--workflow", "blocks")["executions"]] == ["paused"]
    assert rune.json("show", execution)["paused_because"] == reason
    assert reason in rune("show", execution).stdout
    checks = {each["check"]: each for each in rune.json("doctor")["checks"]}
    assert execution in checks["quarantine"]["found"]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[UpProcess]:
    """A server with the node type that blocks, ended by force."""
    process = UpProcess(tmp_path, RUNE_NODES=NODES)
    yield process
    process.stop(signal.SIGKILL)


def test_server_starts_without_an_execution_in_quarantine(tmp_path: Path, up: UpProcess) -> None:
    execution = started(up.start("--no-examples"))
    up.stop(signal.SIGKILL)

    url = up.start("--no-examples", "--quarantine", execution)

    check_quarantined(tmp_path, url, execution, "it was named with --quarantine")
    assert Rune(tmp_path, RUNE_NODES=NODES)("cancel", execution).returncode == 0
    assert "quarantined" not in answers(url, "/readyz")


def test_execution_that_froze_two_servers_is_quarantined_by_the_third(tmp_path: Path, up: UpProcess) -> None:
    url = up.start("--no-examples")
    execution = started(url)
    for count in (1, 2):
        until(partial(noted, tmp_path, execution, count), "it is noted")
        up.stop(signal.SIGKILL)
        url = up.start("--no-examples")

    check_quarantined(tmp_path, url, execution, "it blocked the event loop twice")
