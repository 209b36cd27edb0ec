"""The inbox: what waits for a signal, its form, and the role that sees nothing else."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from rune.client import ApiError
from tests.support.api_clients import API, BOOTSTRAP, RoleClients
from tests.support.api_server import WAITS, RunningServer, run

ASKS: dict[str, Any] = {
    "id": "asks",
    "nodes": [
        {"id": "in", "type": "input"},
        {
            "id": "approve",
            "type": "wait",
            "parameters": {
                "resume": "signal",
                "title": "Refund order {{ $trigger.order }}?",
                "description": "Decide within a day.",
                "choices": ["approve", "reject"],
                "schema": {
                    "type": "object",
                    "properties": {"reason": {"type": "string", "minLength": 3}},
                    "required": ["reason"],
                },
            },
        },
        {"id": "out", "type": "output", "parameters": {"value": "{{ $approve }}"}},
    ],
    "edges": [{"src": "in", "dst": "approve"}, {"src": "approve", "dst": "out"}],
}
EACH: dict[str, Any] = {
    "id": "each",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "s", "type": "split", "parameters": {"input_array": "{{ $trigger.items }}"}},
        {"id": "w", "type": "wait", "parameters": {"resume": "signal", "title": "{{ $item }}"}},
    ],
    "edges": [{"src": "in", "dst": "s"}, {"src": "s", "dst": "w"}],
}


async def inbox(server: RunningServer, count: int, **filters: Any) -> list[Any]:
    """The inbox once it has this many entries."""
    while True:
        found = [each async for each in server.client.waiting(**filters)]
        if len(found) == count:
            return found


def test_inbox_lists_what_waits_with_its_form(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(ASKS, WAITS, EACH)
        first = (await server.client.start("waits", labels={"customer": "7"})).execution_id
        second = (await server.client.start("asks", {"order": 12})).execution_id
        asked, plain = await inbox(server, 2)
        assert (asked.execution_id, asked.node_id, asked.signal) == (second, "approve", "approve")
        assert asked.title == "Refund order 12?"
        assert asked.description == "Decide within a day."
        assert asked.choices == ["approve", "reject"]
        assert asked.schema == ASKS["nodes"][1]["parameters"]["schema"]
        assert (plain.execution_id, plain.signal, plain.labels) == (first, "go", {"customer": "7"})
        assert plain.title is None
        assert [each.execution_id for each in await inbox(server, 1, workflow="asks")] == [second]
        one = await server.get(f"/waiting/{second}/approve")
        assert one["title"] == "Refund order 12?"
        await server.get(f"/waiting/{second}/out", 404)
        await server.client.signal(first, "go")
        assert [each.execution_id for each in await inbox(server, 1)] == [second]
        await server.client.cancel(second)
        await inbox(server, 0)

    run(tmp_path, work)


def test_inbox_names_items(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(EACH)
        id = (await server.client.start("each", {"items": ["a", "b"]})).execution_id
        found = await inbox(server, 2)
        assert sorted((each.item, each.title) for each in found) == [("s:0", "a"), ("s:1", "b")]
        await server.client.signal(id, "w", 1, item="s:0")
        assert [each.item for each in await inbox(server, 1)] == ["s:1"]
        assert (await server.get(f"/waiting/{id}/w?item=s:1"))["title"] == "b"
        await server.get(f"/waiting/{id}/w?item=s:0", 404)

    run(tmp_path, work)


def test_signal_value_is_checked_against_form(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(ASKS)
        id = (await server.client.start("asks", {"order": 12})).execution_id
        await inbox(server, 1)
        for value in ("approve", {"choice": "maybe", "reason": "none"}, {"choice": "approve", "reason": 7}):
            with pytest.raises(ApiError) as refused:
                await server.client.signal(id, "approve", value)
            assert refused.value.status == 422
        given = {"choice": "approve", "reason": "broken"}
        assert (await server.client.signal(id, "approve", given)).resumed
        await server.client.wait(id)
        assert await server.client.output(id) == given

    run(tmp_path, work)


def test_invalid_form_is_a_problem_of_the_document(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        wrong = {**ASKS, "nodes": [dict(each) for each in ASKS["nodes"]]}
        wrong["nodes"][1]["parameters"] = {"resume": "signal", "schema": {"type": "nothing"}}
        checked = await server.client.check(wrong)
        assert not checked.valid
        assert "schema" in checked.problems[0].path

    run(tmp_path, work)


def test_approver_sees_the_inbox_and_nothing_else(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(ASKS, WAITS)
        id = (await server.client.start("asks", {"order": 1})).execution_id
        other = (await server.client.start("waits")).execution_id
        await inbox(server, 2)
        async with AsyncExitStack() as stack:
            ada = await RoleClients(server, stack).connect("ada", "approver", "asks")
            listed = (await ada.get(f"{API}/waiting")).json()["waiting"]
            assert [each["execution_id"] for each in listed] == [id]
            assert (await ada.get(f"{API}/waiting/{id}/approve")).status_code == 200
            assert (await ada.get(f"{API}/waiting/{other}/w")).status_code == 404
            for path in (
                f"/executions/{id}",
                "/executions",
                "/workflows",
                "/stats",
                f"/executions/{id}/graph",
            ):
                assert (await ada.get(f"{API}{path}")).status_code == 403, path
            value = {"choice": "reject", "reason": "too late"}
            sent = await ada.post(f"{API}/executions/{id}/signals", json={"name": "approve", "value": value})
            assert sent.status_code == 200
            assert (
                await ada.post(f"{API}/executions/{other}/signals", json={"name": "go"})
            ).status_code == 404
            assert (await ada.post(f"{API}/executions/{id}/cancel", json={})).status_code == 403

    run(tmp_path, work, key=BOOTSTRAP)
