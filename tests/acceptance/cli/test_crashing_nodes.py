"""A node that kills its process is given up, and nodes that ran beside it are not."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest

from tests.support.cli_process import Rune, until
from tests.support.documents import document, node
from tests.support.up_process import UpProcess

pytestmark = pytest.mark.long

NODES = "tests.support.process_nodes"
KILLS = document([node("in", "input"), node("kill", "place.kill")], "in>kill", id="kills")
RESTS = document([node("in", "input"), node("rest", "place.rest", {"seconds": 2})], "in>rest", id="rests")
KILLERS, BYSTANDERS = 2, 4
CRASHES = 6
MAX_RESTARTS = 3 * CRASHES


def start_all(url: str) -> None:
    with httpx.Client(base_url=f"{url}/api/v1", timeout=30, trust_env=False) as http:
        for deployed in (RESTS, KILLS):
            assert http.post("/workflows", json=deployed).status_code == 201
        for _ in range(BYSTANDERS):
            assert http.post("/workflows/rests/executions", json={"input": {}}).status_code == 202
        for _ in range(KILLERS):
            try:
                http.post("/workflows/kills/executions", json={"input": {}})
            except httpx.TransportError:
                return  # the first one has killed the server


def ends(home: Path) -> dict[str, list[str]]:
    rune = Rune(home, RUNE_NODES=NODES)
    return {
        name: sorted(each["status"] for each in rune.json("list", "--workflow", name)["executions"])
        for name in ("kills", "rests")
    }


def test_nodes_beside_one_that_kills_its_process_are_not_given_up(tmp_path: Path) -> None:
    up = UpProcess(tmp_path, RUNE_NODES=NODES, RUNE_TEST_LEDGER=str(tmp_path / "ledger"))
    start_all(up.start("--no-examples"))

    def died_or_ended() -> str | None:
        if up.process.poll() is not None:
            return "died"
        found = ends(tmp_path)
        open_ones = {"running", "waiting"} & {*found["kills"], *found["rests"]}
        return None if open_ones or not found["kills"] else "ended"

    restarts = 0
    while until(died_or_ended, "it dies or all executions end") == "died":
        up.stop(signal.SIGKILL)
        restarts += 1
        assert restarts <= MAX_RESTARTS
        up.start("--no-examples")
    up.stop()

    found = ends(tmp_path)
    assert found["rests"] == ["completed"] * BYSTANDERS
    assert set(found["kills"]) == {"failed"}
    letters = Rune(tmp_path, RUNE_NODES=NODES).json("dlq")["dead_letters"]
    assert [each["code"] for each in letters] == ["WORKER_CRASH"] * len(found["kills"])
