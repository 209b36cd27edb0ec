"""Handles of executions, errors by status, defaults from the environment, and clients of an application."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

import rune
from rune.build import Workflow, fail, input, output, wait
from rune.client import (
    ApiError,
    ClientError,
    Conflict,
    ExecutionFailed,
    Forbidden,
    Invalid,
    NotFound,
    RateLimited,
)
from rune.client.errors import api_error
from rune.errors import RuneError
from rune.testing.engine import EmbeddedEngine


def asking() -> dict[str, Any]:
    flow = Workflow("asking")
    with flow:
        start = input("start")
        ask = wait("ask", resume="signal")
        done = output("done", value=ask.out)
    start >> ask >> done
    return flow.to_dict()


def failing() -> dict[str, Any]:
    flow = Workflow("failing")
    with flow:
        start = input("start")
        broken = fail("broken", code="NO_LUCK", message="not today")
    start >> broken
    return flow.to_dict()


def test_handle_explains_signals_waits_and_returns_the_result(
    rune_client: rune.Client, rune_engine: EmbeddedEngine
) -> None:
    rune_client.deploy(asking())
    run = rune_client.start("asking", {"a": 1})
    rune_engine.settle()

    waiting = run.explain().waiting
    run.signal("ask", {"ok": True})
    rune_engine.settle()

    assert [each.node for each in waiting] == ["ask"]
    assert run.execution_id == run.id == run.started.execution_id
    assert run.wait(5).status == "completed"
    assert run.result(timeout=5) == run.output() == {"ok": True}
    assert [event.kind for event in run.watch()][-1] == "execution.completed"
    assert [each.node_id for each in run.nodes()] == ["start", "ask", "done"]
    assert rune_client.handle(run.id).result() == {"ok": True}


def test_handle_of_failed_execution_raises_with_code_and_retries(
    rune_client: rune.Client, rune_engine: EmbeddedEngine
) -> None:
    rune_client.deploy(failing())
    run = rune_client.start("failing")
    rune_engine.settle()

    with pytest.raises(ExecutionFailed, match="ended as halted: NO_LUCK: not today") as raised:
        run.result(timeout=5)
    again = run.retry()
    rune_engine.settle()

    assert raised.value.code == "NO_LUCK"
    assert again.retry_of == run.id
    assert again.wait(5).status == "halted"


def test_cancelled_handle_times_out_before_and_ends_after(
    rune_client: rune.Client, rune_engine: EmbeddedEngine
) -> None:
    rune_client.deploy(asking())
    run = rune_client.start("asking")
    rune_engine.settle()

    with pytest.raises(TimeoutError):
        run.wait(0)
    assert run.cancel("enough").changed
    rune_engine.settle()
    assert run.execution().status == "cancelled"


def test_unknown_workflow_and_invalid_document_raise_by_status(rune_client: rune.Client) -> None:
    with pytest.raises(NotFound):
        rune_client.start("nothing")
    with pytest.raises(Invalid) as invalid:
        rune_client.deploy({"id": "a", "nodes": []})
    assert [each.code for each in invalid.value.problems] == ["NO_NODES"]


@pytest.mark.parametrize(
    ("status", "error"),
    [(401, Forbidden), (403, Forbidden), (404, NotFound), (409, Conflict), (412, Conflict), (422, Invalid)],
)
def test_error_of_status_is_an_api_error_of_its_own(status: int, error: type[ApiError]) -> None:
    found = api_error(status, b"no")

    assert type(found) is error
    assert isinstance(found, ClientError)
    assert found.status == status


def test_rate_limit_tells_when_to_try_again() -> None:
    found = api_error(429, b"slow down", {"Retry-After": "7"})

    assert isinstance(found, RateLimited)
    assert found.retry_after == 7


def test_server_and_key_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str | None]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append((request.url.host, request.headers.get("Authorization")))
        return httpx.Response(404)

    monkeypatch.setenv("RUNE_URL", "https://one.example")
    monkeypatch.setenv("RUNE_API_KEY", "secret")
    transport = httpx.MockTransport(answer)
    for client in (
        rune.Client(transport=transport),
        rune.Client("http://two.example", transport=transport),
        rune.Client("http://two.example", key="own", transport=transport, headers={"X-Team": "a"}),
    ):
        with client, pytest.raises(NotFound):
            client.execution("x")

    assert seen == [("one.example", "Bearer secret"), ("two.example", None), ("two.example", "Bearer own")]


@pytest.mark.parametrize("kind", [rune.Client, rune.AsyncClient])
def test_key_of_the_environment_is_not_sent_over_plain_http_to_another_machine(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNE_API_KEY", "secret")
    for refused in ("http://one.example", "http://10.0.0.7:8080"):
        monkeypatch.setenv("RUNE_URL", refused)
        with pytest.raises(RuneError) as error:
            kind()
        assert error.value.code == "KEY_NOT_SENT"
        assert "secret" not in error.value.message
    for accepted in ("http://localhost:8080", "http://[::1]:8080", "https://one.example"):
        monkeypatch.setenv("RUNE_URL", accepted)
        kind()


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answers every request with an execution that has completed."""
    body = b'{"execution_id": "e", "workflow_id": "w", "status": "completed", "hash": "h", "started_at": "t"}'
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}
    )
    await send({"type": "http.response.body", "body": body})


def test_client_calls_an_application_without_a_socket() -> None:
    async def ask() -> str:
        async with rune.AsyncClient(app=application) as client:
            return (await client.execution("e")).status

    with rune.Client(app=application) as client:
        assert client.execution("e").status == "completed"
    assert asyncio.run(ask()) == "completed"
