"""`http` as a step of a workflow: its own retry parameters, and servers that ask for patience."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from tests.acceptance.conformance.case import Case
from tests.acceptance.conformance.command import run
from tests.acceptance.conformance.stubs import Surroundings, surroundings
from tests.unit.core.documents import document, node

Told = tuple[dict[str, Any], Surroundings]


class Runs:
    """Runs a workflow of one request."""

    def __init__(self, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capsys = capsys

    def __call__(self, *routes: dict[str, Any], policy: Any = None, **parameters: Any) -> Told:
        more = {"retry": policy} if policy else {}
        call = node("call", "http", parameters={"url": "{{base_url}}/x", **parameters}, **more)
        case = Case("one", "", (), {}, document([node("start", "input"), call], "start>call"), http=routes)
        with surroundings(case) as around:
            file = self._folder / "one.json"
            file.write_text(case.workflow_source(around.base_url))
            seen = run([str(file), "--json", "--fake-time"], self._capsys)
        told = json.loads(seen.stdout)
        (told["entry"],) = [each for each in told["nodes"] if each["node_id"] == "call"]
        return told, around


@pytest.fixture
def runs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Runs:
    monkeypatch.setenv("RUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RUNE_HTTP_ALLOW", "127.0.0.1")
    return Runs(tmp_path, capsys)


def busy(times: int, **headers: str) -> dict[str, Any]:
    return {"path": "/x", "status": 503, "text": "busy", "times": times, "headers": headers}


READY = {"path": "/x", "json": {}}


def test_the_parameters_say_how_often_it_tries(runs: Runs) -> None:
    told, around = runs(busy(2), READY, raise_on_status="5xx", retry="2", retry_delay="60")

    assert (told["entry"]["status"], told["entry"]["attempts"]) == ("success", 3)
    assert told["total_duration_ms"] >= 120_000
    assert around.http.calls["/x"].count == 3


def test_the_policy_of_the_node_wins(runs: Runs) -> None:
    told, around = runs(busy(2), READY, policy={"max_attempts": 1}, raise_on_status="5xx", retry=2)

    assert (told["entry"]["status"], told["entry"]["error"]["code"]) == ("failed", "HTTP_STATUS")
    assert around.http.calls["/x"].count == 1


def test_the_server_says_when_the_next_attempt_is_due(runs: Runs) -> None:
    policy = {"max_attempts": 2, "initial_delay": 1, "jitter": False}

    told, _ = runs(busy(1, **{"Retry-After": "7200"}), READY, policy=policy, raise_on_status="5xx")

    assert (told["entry"]["status"], told["entry"]["attempts"]) == ("success", 2)
    assert told["total_duration_ms"] >= 7_200_000


def test_without_an_allow_list_this_machine_is_out_of_reach(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RUNE_HTTP_ALLOW")

    told, around = runs(READY)

    assert told["entry"]["error"]["code"] == "HTTP_BLOCKED"
    assert around.http.calls == {}
