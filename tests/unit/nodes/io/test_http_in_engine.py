"""The `http` node in the engine: retry parameters, Retry-After and the allow list."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from tests.acceptance.conformance.case import Case
from tests.acceptance.conformance.command import run
from tests.acceptance.conformance.stubs import StubServers, stub_servers
from tests.support.documents import document, node

RunResult = tuple[dict[str, Any], StubServers]


class WorkflowRunner:
    """Runs a workflow with one `http` node."""

    def __init__(self, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capsys = capsys

    def __call__(self, *routes: dict[str, Any], policy: Any = None, **parameters: Any) -> RunResult:
        options = {"retry": policy} if policy else {}
        run_node = node("call", "http", parameters={"url": "{{base_url}}/x", **parameters}, **options)
        case = Case(
            "one", "", (), {}, document([node("start", "input"), run_node], "start>call"), http=routes
        )
        with stub_servers(case) as servers:
            file = self._folder / "one.json"
            file.write_text(case.workflow_source(servers.base_url))
            finished = run([str(file), "--json", "--fake-time"], self._capsys)
        result = json.loads(finished.stdout)
        (result["entry"],) = [each for each in result["nodes"] if each["node_id"] == "call"]
        return result, servers


@pytest.fixture
def run_workflow(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> WorkflowRunner:
    monkeypatch.setenv("RUNE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RUNE_HTTP_ALLOW", "127.0.0.1")
    return WorkflowRunner(tmp_path, capsys)


def busy(times: int, **headers: str) -> dict[str, Any]:
    return {"path": "/x", "status": 503, "text": "busy", "times": times, "headers": headers}


READY = {"path": "/x", "json": {}}


def test_retry_parameters_set_attempts(run_workflow: WorkflowRunner) -> None:
    result, servers = run_workflow(busy(2), READY, raise_on_status="5xx", retry="2", retry_delay="60")

    assert (result["entry"]["status"], result["entry"]["attempts"]) == ("success", 3)
    assert result["total_duration_ms"] >= 120_000
    assert servers.http.calls["/x"].count == 3


def test_node_retry_policy_overrides_parameters(run_workflow: WorkflowRunner) -> None:
    result, servers = run_workflow(busy(2), READY, policy={"max_attempts": 1}, raise_on_status="5xx", retry=2)

    assert (result["entry"]["status"], result["entry"]["error"]["code"]) == ("failed", "HTTP_STATUS")
    assert servers.http.calls["/x"].count == 1


def test_retry_after_delays_next_attempt(run_workflow: WorkflowRunner) -> None:
    policy = {"max_attempts": 2, "initial_delay": 1, "jitter": False}

    result, _ = run_workflow(busy(1, **{"Retry-After": "7200"}), READY, policy=policy, raise_on_status="5xx")

    assert (result["entry"]["status"], result["entry"]["attempts"]) == ("success", 2)
    assert result["total_duration_ms"] >= 7_200_000


def test_localhost_is_blocked_without_allow_list(
    run_workflow: WorkflowRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RUNE_HTTP_ALLOW")

    result, servers = run_workflow(READY)

    assert result["entry"]["error"]["code"] == "HTTP_BLOCKED"
    assert servers.http.calls == {}


@pytest.mark.parametrize(
    ("status", "on", "attempts"),
    [
        (404, [], 1),
        (422, [], 1),
        (408, [], 3),
        (425, [], 3),
        (429, [], 3),
        (500, [], 3),
        (404, ["HTTP_STATUS"], 3),
    ],
)
def test_status_is_retried_if_transient_or_named(
    status: int, on: list[str], attempts: int, run_workflow: WorkflowRunner
) -> None:
    route = {"path": "/x", "status": status, "text": "no"}

    result, servers = run_workflow(route, policy={"max_attempts": 3, "on": on}, raise_on_status="4xx,5xx")

    assert result["entry"]["attempts"] == servers.http.calls["/x"].count == attempts


def test_blocked_address_is_not_retried(run_workflow: WorkflowRunner) -> None:
    result, _ = run_workflow(url="http://10.0.0.1/", policy={"max_attempts": 3})

    assert (result["entry"]["error"]["code"], result["entry"]["attempts"]) == ("HTTP_BLOCKED", 1)
