"""A start with `wait` responds with the execution when it has ended or the time is over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.api_server import API, HELLO, WAITS, RunningServer, run

START = f"{API}/workflows/hello/executions"
INPUT = {"input": {"name": "Ada"}}


def test_start_responds_with_ended_execution(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        started = await server.http.post(START, params={"wait": 30}, json=INPUT)
        assert started.status_code == 202
        execution = started.json()["execution"]
        assert execution["status"] == "completed"
        assert execution == await server.get(f"/executions/{started.json()['execution_id']}")

    run(tmp_path, work)


def test_start_of_definition_responds_with_ended_execution(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        body = {"definition": HELLO, **INPUT}
        started = await server.post("/executions", body, 202, params={"wait": 30})
        assert started["execution"]["status"] == "completed"

    run(tmp_path, work)


def test_start_without_wait_responds_at_once(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        started = await server.post("/workflows/hello/executions", INPUT, 202)
        assert started["execution"] is None

    run(tmp_path, work)


def test_execution_that_does_not_end_in_time_is_running(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        started = await server.post("/workflows/waits/executions", {}, 202, params={"wait": 0.05})
        assert started["execution"]["status"] == "running"
        await server.client.signal(started["execution_id"], "go", 1)
        assert (await server.client.wait(started["execution_id"], 60)).status == "completed"

    run(tmp_path, work)


def test_repeated_start_waits_for_the_first_execution(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        headers = {"Idempotency-Key": "order-7"}
        found: list[Any] = []
        for status in (202, 200):
            answer = await server.http.post(START, params={"wait": 30}, json=INPUT, headers=headers)
            assert answer.status_code == status
            found.append(answer.json())
        assert [each["replayed"] for each in found] == [False, True]
        assert found[0]["execution"] == found[1]["execution"]
        assert found[0]["execution"]["status"] == "completed"

    run(tmp_path, work)


def test_invalid_wait_is_rejected_and_starts_nothing(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        for wrong in ("61", "-1", "soon", "nan"):
            answer = await server.http.post(START, params={"wait": wrong}, json=INPUT)
            assert answer.status_code == 422, answer.text
            assert "wait" in answer.json()["detail"]
        assert (await server.get("/executions"))["executions"] == []

    run(tmp_path, work)


def test_client_runs_definition_with_one_request(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        sent: list[str] = []

        async def note(request: Any) -> None:
            sent.append(request.method)

        server.client._http.event_hooks["request"].append(note)
        assert (await server.client.run(HELLO, {"name": "Ada"}, seconds=30)).status == "completed"
        assert sent == ["POST"]
        await server.deploy(HELLO)
        sent.clear()
        handle = await server.client.start("hello", {"name": "Ada"}, wait=30)
        assert (await handle.wait()).status == "completed"
        assert sent == ["POST"]

    run(tmp_path, work)
