"""A request that replays an execution with many facts does not delay other requests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rune.adapters.sqlite import state
from rune.adapters.sqlite.state import SqliteState
from rune.core.execution import rerun
from rune.runtime.lifecycle import finisher
from rune.runtime.queries import history, node_input, reader
from tests.support.api_server import ITEMS, RunningServer, run
from tests.support.waiting import until

BLOCKED_S = 30.0
WAITING: dict[str, Any] = {
    **ITEMS,
    "id": "waiting",
    "nodes": [
        *ITEMS["nodes"],
        {"id": "w", "type": "wait", "parameters": {"resume": "signal", "name": "go"}},
    ],
    "edges": [*ITEMS["edges"], {"src": "all", "dst": "w"}],
}


def hold_replays(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> tuple[asyncio.Event, threading.Event]:
    """Let each replay of a module wait. Return what is set when one begins, and what to set to let it go on."""
    began, answered = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    fold: Callable[..., Any] = vars(module)["fold"]

    def held(*arguments: Any) -> Any:
        loop.call_soon_threadsafe(began.set)
        assert answered.wait(BLOCKED_S), "the event loop is blocked"
        return fold(*arguments)

    monkeypatch.setattr(module, "fold", held)
    monkeypatch.setattr(history, "MAX_INLINE_FACTS", 0)
    monkeypatch.setattr(state, "MAX_INLINE_FACTS", 0)
    return began, answered


async def while_replaying(
    server: RunningServer, held: tuple[asyncio.Event, threading.Event], call: Any
) -> Any:
    """Make a call; while it replays, ask for the health of the server. Return the answer to the call."""
    began, answered = held
    task = asyncio.ensure_future(call)
    await began.wait()
    assert (await server.http.get("/healthz")).status_code == 200
    answered.set()
    return await task


async def no_state(self: SqliteState, execution: str) -> None:
    """Know no state of an execution, as if it were not in memory."""


async def waiting_execution(server: RunningServer) -> str:
    await server.deploy(WAITING)
    id = (await server.client.start("waiting", {"items": [1, 2, 3]})).execution_id

    async def waits() -> bool:
        found = await server.get(f"/executions/{id}/explain")
        return [each["node"] for each in found["waiting"]] == ["w"]

    await until(waits, "the execution waits for the signal")
    return id


def test_explain_does_not_delay_other_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(server: RunningServer) -> None:
        id = await waiting_execution(server)
        monkeypatch.setattr(SqliteState, "peek", no_state)
        held = hold_replays(monkeypatch, reader)
        found = await while_replaying(server, held, server.get(f"/executions/{id}/explain"))
        assert [each["node"] for each in found["waiting"]] == ["w"]

    run(tmp_path, work)


def test_explain_of_a_large_execution_replays_nothing_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed: list[None] = []

    def fold(*given: Any) -> Any:
        replayed.append(None)
        return whole(*given)

    async def work(server: RunningServer) -> None:
        id = await waiting_execution(server)
        _, replayed_state = await server.master.reader.state(id, 0)

        async def known(self: SqliteState, execution: str) -> Any:
            return replayed_state

        monkeypatch.setattr(reader, "fold", fold)
        monkeypatch.setattr(history, "MAX_INLINE_FACTS", 0)
        for peek, expected in ((known, 0), (no_state, 1), (no_state, 1)):
            monkeypatch.setattr(SqliteState, "peek", peek)
            found = await server.get(f"/executions/{id}/explain")
            assert ([each["node"] for each in found["waiting"]], len(replayed)) == (["w"], expected)
        await server.client.signal(id, "go")
        assert (await server.client.wait(id, 60)).status == "completed"
        assert (await server.get(f"/executions/{id}/explain"))["waiting"] == []

    whole = vars(reader)["fold"]
    run(tmp_path, work)


def test_input_of_a_node_that_waits_is_read_without_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(server: RunningServer) -> None:
        id = await waiting_execution(server)
        expected = await server.get(f"/executions/{id}/nodes/w/input")
        monkeypatch.setattr(node_input, "fold", no_replay)
        assert await server.get(f"/executions/{id}/nodes/w/input") == expected
        assert (expected["attempt"], expected["parameters"]) == (1, {"resume": "signal", "name": "go"})
        monkeypatch.setattr(history, "MAX_INLINE_FACTS", 0)
        answer = await server.http.get(f"/api/v1/executions/{id}/nodes/out/input")
        assert answer.status_code == 404

    def no_replay(*given: Any) -> Any:
        raise AssertionError("the facts of the execution are replayed")

    run(tmp_path, work)


def test_cancel_does_not_delay_other_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(server: RunningServer) -> None:
        id = await waiting_execution(server)
        held = hold_replays(monkeypatch, finisher)
        await while_replaying(server, held, server.client.cancel(id))
        found = await server.get(f"/executions/{id}")
        assert (found["status"], found["failed_items"]) == ("cancelled", 2)

    run(tmp_path, work)


def test_retry_does_not_delay_other_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(ITEMS)
        id = await server.ended("items", {"items": [1, 2, 3]})
        held = hold_replays(monkeypatch, rerun)
        again = await while_replaying(server, held, server.client.retry(id))
        end = await server.client.wait(again.execution_id, 60)
        assert end.failed_items == 2

    run(tmp_path, work)


def test_complete_history_does_not_delay_other_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(ITEMS)
        id = await server.ended("items", {"items": [1, 2, 3]})
        held = hold_replays(monkeypatch, history)
        found = await server.master.reader.history(id)
        document = await while_replaying(server, held, found.document())
        assert sum(each["status"] == "skipped" for each in document["nodes"]) == 3

    run(tmp_path, work)


def test_loading_after_a_restart_does_not_delay_other_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go_on(server: RunningServer) -> None:
        signals = asyncio.gather(*(server.client.signal(execution, "go", key="once") for _ in range(3)))
        await while_replaying(server, hold_replays(monkeypatch, state), signals)
        end = await server.client.wait(execution, 60)
        assert (end.status, end.failed_items) == ("completed", 2)

    execution = run(tmp_path, waiting_execution)
    run(tmp_path, go_on)


def test_execution_that_is_cancelled_while_it_is_loaded_does_not_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancel(server: RunningServer) -> None:
        began, answered = hold_replays(monkeypatch, state)
        signal = asyncio.ensure_future(server.client.signal(execution, "go"))
        await began.wait()
        cancelled = asyncio.ensure_future(server.client.cancel(execution))
        await until(lambda: ended(server), "the end is recorded")
        answered.set()
        await asyncio.gather(signal, cancelled, return_exceptions=True)
        assert (await server.client.wait(execution, 60)).status == "cancelled"
        assert (await server.get(f"/executions/{execution}/explain"))["waiting"] == []
        backend = server.engine.backend.state
        assert await backend.peek(execution) is None

    async def ended(server: RunningServer) -> bool:
        return bool((await server.get(f"/executions/{execution}"))["status"] == "cancelled")

    execution = run(tmp_path, waiting_execution)
    run(tmp_path, cancel)
