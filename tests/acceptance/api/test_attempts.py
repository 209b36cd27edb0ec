"""Attempts of node runs, their logs, and what nodes were called with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rune.client.errors import ApiError
from tests.support.api_server import RunningServer, run
from tests.support.gated_nodes import close_gates, gate
from tests.support.waiting import until
from tests.support.workflows import edit, fail, of_type, workflow

NODES = ("tests.support.gated_nodes",)
RETRIED = {
    **workflow(
        "start>t",
        t={
            **of_type("gated.second_try", name="{{ $trigger.name }}"),
            "retry": {"max_attempts": 2, "initial_delay": 0},
        },
    ),
    "id": "retried",
}
PARTS = {
    **workflow(
        "start>s s>x x>l l>all all>c",
        s=of_type("split", input_array="{{ $trigger.users }}"),
        x=edit(name="{{ $item.name }}", token="{{ $item.token }}", sum="{{ $json.n + 1 }}"),
        l=of_type("log", message="{{ $x.name }}"),
        all=of_type("aggregator"),
        c=of_type("conditional", expression="len($all) > 1"),
    ),
    "id": "parts",
}
BROKEN = {**workflow("start>x", x=of_type("output", value="{{ 1 / $trigger.zero }}")), "id": "broken"}
USERS = {"users": [{"name": "Ada", "token": "s3cret", "n": 1}, {"name": "Bob", "token": "t0ken", "n": 2}]}


@pytest.fixture(autouse=True)
def closed_gates() -> None:
    close_gates()


def test_attempts_are_listed_with_begin_end_error_and_worker(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(RETRIED)
        gate("g").set()
        id = await server.ended("retried", {"name": "g"})
        first, second = await server.client.attempts(id, "t")
        assert (first.attempt, first.status, second.attempt, second.status) == (1, "failed", 2, "success")
        assert first.error is not None
        assert first.error.code == "BUSY"
        assert first.worker == second.worker == server.engine.name
        assert first.started_at <= (first.ended_at or "") <= second.started_at
        assert first.duration_ms is not None
        logged = await server.client.attempt_log(id, "t", 2)
        assert [(each.level, each.message) for each in logged.lines] == [("info", "trying attempt=2")]
        assert (await server.client.attempt_log(id, "t", 3)).lines == []
        assert (await server.client.attempts(id, "start")) == []
        with pytest.raises(ApiError, match="not a node"):
            await server.client.attempts(id, "nobody")

    run(tmp_path, work, nodes=NODES)


def test_attempt_that_runs_is_listed_as_running(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(RETRIED)
        id = (await server.client.start("retried", {"name": "g"})).execution_id

        async def running() -> bool:
            found = await server.client.attempts(id, "t")
            return [each.status for each in found] == ["failed", "running"]

        await until(running, "the second attempt runs", 60.0)
        (_, shown) = await server.client.attempts(id, "t")
        assert (shown.worker, shown.ended_at) == (server.engine.name, None)
        gate("g").set()
        await server.client.wait(id)

    run(tmp_path, work, nodes=NODES)


def test_logs_of_execution_are_paged(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(PARTS)
        id = await server.ended("parts", USERS)
        found = [each async for each in server.client.logs(id, page=1)]
        shown = sorted((each.lineage[0].item_index, each.lines[0].message) for each in found)
        assert shown == [(0, "Ada"), (1, "Bob")]
        assert [each async for each in server.client.logs(id, node="x")] == []
        page = await server.get(f"/executions/{id}/logs?limit=1")
        assert len(page["logs"]) == 1
        assert page["next"] is not None

    run(tmp_path, work, nodes=NODES)


def test_input_is_payload_and_resolved_parameters_of_item(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(PARTS)
        id = await server.ended("parts", USERS)
        found = await server.client.node_input(id, "x", lineage="s:1")
        assert found.payload == {"name": "Bob", "token": "***", "n": 2}
        assert found.parameters is not None
        values = {each["name"]: each["value"] for each in found.parameters["assignments"]}
        assert (values["name"], values["sum"]) == ("Bob", 3)
        condition = await server.client.node_input(id, "c")
        assert condition.parameters == {"expression": "len($all) > 1"}
        assert [each["name"] for each in condition.payload] == ["Ada", "Bob"]
        start = await server.client.node_input(id, "start")
        assert [each["name"] for each in start.payload["users"]] == ["Ada", "Bob"]
        for wrong in ({"node": "x", "lineage": "s:7"}, {"node": "x"}, {"node": "nobody"}):
            with pytest.raises(ApiError) as refused:
                await server.client.node_input(id, **wrong)
            assert refused.value.status == 404

    run(tmp_path, work, nodes=NODES)


def test_input_of_item_and_explanation_of_ended_execution_read_no_facts_of_other_items(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their cost does not grow with the number of items."""

    async def work(server: RunningServer) -> None:
        await server.deploy(PARTS)
        id = await server.ended(
            "parts", {"users": [{"name": str(at), "token": "", "n": at} for at in range(50)]}
        )
        monkeypatch.setattr(server.master.reader, "facts", None)

        found = await server.client.node_input(id, "x", lineage="s:49")

        assert found.payload["n"] == 49
        assert found.parameters is not None
        assert found.parameters["assignments"][-1]["value"] == 50
        assert (await server.client.node_input(id, "all")).payload is not None
        assert (await server.get(f"/executions/{id}/explain"))["waiting"] == []

    run(tmp_path, work)


def test_input_of_open_node_is_told_before_it_ends(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(RETRIED)
        id = (await server.client.start("retried", {"name": "g"})).execution_id

        async def second() -> bool:
            found = await server.client.node_input(id, "t")
            return found.attempt == 2

        await until(second, "the second attempt is open", 60.0)
        found = await server.client.node_input(id, "t")
        assert (found.payload, found.parameters) == ({"name": "g"}, {"name": "g"})
        gate("g").set()
        await server.client.wait(id)
        assert (await server.client.node_input(id, "t")).parameters == {"name": "g"}

    run(tmp_path, work, nodes=NODES)


def test_input_with_parameters_that_fail_tells_the_error(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(BROKEN)
        id = await server.ended("broken", {"zero": 0})
        found: Any = await server.client.node_input(id, "x")
        assert found.parameters is None
        assert found.payload == {"zero": 0}
        assert found.error is not None
        assert "parameters.value" in found.error.message

    run(tmp_path, work, nodes=NODES)


def test_input_of_failed_node_is_told(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy({**workflow("start>f", f=fail("BROKEN")), "id": "fails"})
        id = await server.ended("fails", {"a": 1})
        found = await server.client.node_input(id, "f")
        assert found.payload == {"a": 1}
        assert found.parameters is not None
        assert found.parameters["code"] == "BROKEN"

    run(tmp_path, work, nodes=NODES)
