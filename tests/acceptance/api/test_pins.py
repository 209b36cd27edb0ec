"""Starts with pinned outputs and reruns of definitions that are not stored, over HTTP, on both backends."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rune.client import ApiError
from tests.support.api_clients import BOOTSTRAP, RoleClients
from tests.support.api_server import DEADLINE, RunningServer, run
from tests.support.backends import stores


def edit(id: str, value: str, **more: Any) -> dict[str, Any]:
    assignment = {"name": "v", "value": value}
    return {
        "id": id,
        "type": "edit",
        "parameters": {"mode": "keep_only", "assignments": [assignment]},
        **more,
    }


def order(**more: Any) -> dict[str, Any]:
    """A workflow with a node that fails if it is called."""
    return {
        "id": "order",
        "nodes": [
            {"id": "in", "type": "input"},
            {"id": "price", "type": "fail", "parameters": {"message": "called"}},
            {"id": "cheap", "type": "conditional", "parameters": {"expression": "$price.amount < 10"}},
            edit("yes", "{{ $price.amount }}"),
            {"id": "no", "type": "noop"},
        ],
        "edges": [
            {"src": "in", "dst": "price"},
            {"src": "price", "dst": "cheap"},
            {"src": "cheap", "dst": "yes", "label": "true"},
            {"src": "cheap", "dst": "no", "label": "false"},
        ],
        **more,
    }


async def problems(server: RunningServer, body: dict[str, Any]) -> list[tuple[str, str]]:
    refused = await server.post("/executions", body, 422)
    return [(each["path"], each["code"]) for each in refused["problems"] if each["severity"] == "error"]


async def check_pins(server: RunningServer) -> None:
    client = server.client
    started = await client.start_definition(order(), pins={"price": {"amount": 7}})
    ended = await started.wait(DEADLINE)
    assert (ended.status, ended.version) == ("completed", None)
    assert await started.output() == {"yes": {"v": 7}}
    runs = {each.node_id: each.pinned async for each in client.nodes(ended.execution_id)}
    assert runs == {"in": False, "price": True, "cheap": False, "yes": False, "no": False}
    events = [each async for each in client.watch(ended.execution_id)]
    assert [each.node_id for each in events if each.details.get("pinned")] == ["price"]
    stored = await client.definition(ended.hash)
    assert next(each for each in stored["nodes"] if each["id"] == "price")["pin"] == {"output": {"amount": 7}}

    chosen = await client.run(
        order(), pins={"price": 1, "cheap": {"result": False}}, outlets={"cheap": "false"}, seconds=DEADLINE
    )
    assert await client.output(chosen.execution_id) == {"no": 1}

    # A deployed workflow keeps calling its nodes; an execution with pins is of no version.
    await server.deploy(order())
    plain = await client.start("order")
    assert ((await plain.wait(DEADLINE)).status, plain.version) == ("halted", 1)
    given = await client.start("order", pins={"price": {"amount": 50}})
    assert (await given.wait(DEADLINE)).status == "completed"
    assert (given.version, given.alias, given.workflow_id) == (None, None, "order")

    # A retry of an execution with pins has them too, and so has a rerun with other parameters.
    again = await client.rerun(ended.execution_id, "yes", parameters={"mode": "assignments"})
    assert (await again.wait(DEADLINE)).status == "completed"
    whole = await client.rerun(ended.execution_id, "in", input={})
    assert (await whole.wait(DEADLINE)).status == "completed"

    assert await problems(server, {"definition": order(), "pins": {"prize": 1}}) == [
        ("pins.prize", "UNKNOWN_NODE")
    ]
    assert await problems(server, {"definition": order(), "pins": {"in": 1, "cheap": 1}}) == [
        ("nodes[0].pin", "WRONG_VALUE"),
        ("nodes[2].pin.outlet", "MISSING_FIELD"),
    ]
    assert await problems(server, {"workflow": "order", "outlets": {"cheap": "true"}}) == [
        ("outlets.cheap", "NO_EFFECT")
    ]
    assert await problems(server, {"workflow": "order", "pins": {"price": "x" * 3_000_000}}) == [
        ("body.pins", "TOO_LARGE")
    ]


def test_start_with_pins_does_not_call_the_pinned_nodes(tmp_path: Path) -> None:
    run(tmp_path, check_pins)


def test_start_with_pins_does_not_call_the_pinned_nodes_on_a_cluster(tmp_path: Path) -> None:
    run(tmp_path, check_pins, on=replace(stores(tmp_path), nodes=(), grace=1.0))


def test_deployment_of_a_document_with_pins_is_refused(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        document = order()
        document["nodes"][1]["pin"] = {"output": 1}
        checked = await server.client.check(document)
        assert [(each.path, each.code) for each in checked.problems] == [("nodes[1].pin", "PINNED")]
        with pytest.raises(ApiError) as refused:
            await server.client.deploy(document)
        assert [(each.path, each.code) for each in refused.value.problems] == [("nodes[1].pin", "PINNED")]

    run(tmp_path, work)


FETCH = {
    "id": "fetch",
    "nodes": [
        {"id": "in", "type": "input"},
        edit("first", "{{ $trigger.n }}"),
        {"id": "s", "type": "split", "parameters": {"input_array": "{{ $trigger.xs }}"}},
        edit("each", "{{ $item }}"),
        {"id": "all", "type": "aggregator"},
        edit("last", "{{ $all[0].v }}"),
    ],
    "edges": [
        {"src": "in", "dst": "first"},
        {"src": "first", "dst": "s"},
        {"src": "s", "dst": "each"},
        {"src": "each", "dst": "all"},
        {"src": "all", "dst": "last"},
    ],
}


def draft() -> dict[str, Any]:
    """The workflow as an author has changed it: every node before `sum` would have another output if it ran."""
    return {
        "id": "fetch",
        "nodes": [
            {"id": "in", "type": "input"},
            edit("sum", "{{ [$first.v, $all] }}"),
            edit("first", "{{ 1000 }}"),
            {"id": "s", "type": "split", "parameters": {"input_array": "{{ [] }}"}},
            edit("each", "{{ 1000 }}"),
            {"id": "all", "type": "aggregator"},
        ],
        "edges": [
            {"src": "in", "dst": "first"},
            {"src": "first", "dst": "s"},
            {"src": "s", "dst": "each"},
            {"src": "each", "dst": "all"},
            {"src": "all", "dst": "sum"},
        ],
    }


async def check_drafts(server: RunningServer) -> None:
    client = server.client
    await server.deploy(FETCH)
    id = await server.ended("fetch", {"n": 5, "xs": ["a", "b"]})

    edited = draft()
    tried = await client.rerun(id, "sum", definition=edited)
    assert await tried.result(DEADLINE) == {"sum": {"v": [5, [{"v": "a"}, {"v": "b"}]]}}
    assert (tried.retry_of, tried.version) == (id, None)
    kept = [each async for each in client.watch(tried.execution_id) if each.details.get("kept")]
    assert sorted({each.node_id or "" for each in kept}) == ["all", "each", "first", "s"]
    assert (await client.execution(id)).status == "completed"

    # From a node inside of a split: its items are those of the past execution.
    inside = await client.rerun(id, "each", definition=edited)
    assert await inside.result(DEADLINE) == {"sum": {"v": [5, [{"v": 1000}, {"v": 1000}]]}}
    one = await client.rerun(id, "each", item="s:1", definition=edited)
    assert await one.result(DEADLINE) == {"sum": {"v": [5, [{"v": "a"}, {"v": 1000}]]}}

    # A node before it that is connected otherwise runs, and everything behind it.
    rewired = {**edited, "nodes": [*edited["nodes"], {"id": "new", "type": "noop"}]}
    rewired["edges"] = [
        {"src": "in", "dst": "new"},
        {"src": "new", "dst": "first"},
        *edited["edges"][1:],
    ]
    again = await client.rerun(id, "sum", definition=rewired)
    assert await again.result(DEADLINE) == {"sum": {"v": [1000, []]}}

    pinned = await client.rerun(id, "sum", definition=edited, pins={"first": {"v": "pinned"}})
    assert await pinned.result(DEADLINE) == {"sum": {"v": ["pinned", []]}}
    fed = await client.rerun(id, "sum", definition=edited, input=[1])
    assert await fed.result(DEADLINE) == {"sum": {"v": [5, [1]]}}

    async def refused(**changes: Any) -> str:
        with pytest.raises(ApiError) as error:
            await client.rerun(id, "sum", **changes)
        return error.value.code

    assert await refused(definition=edited, version=1) == "BAD_BODY"
    assert await refused(definition={"nodes": []}) == "INVALID"
    assert await refused(definition=FETCH) == "UNKNOWN_NODE"

    # A version may have other nodes than the execution.
    await server.deploy(edited)
    newer = await client.rerun(id, "sum", version=2)
    assert await newer.result(DEADLINE) == {"sum": {"v": [5, [{"v": "a"}, {"v": "b"}]]}}
    assert newer.version == 2


def test_rerun_of_a_draft_takes_the_outputs_of_the_past_execution(tmp_path: Path) -> None:
    run(tmp_path, check_drafts)


def test_rerun_of_a_draft_takes_the_outputs_of_the_past_execution_on_a_cluster(tmp_path: Path) -> None:
    run(tmp_path, check_drafts, on=replace(stores(tmp_path), nodes=(), grace=1.0))


def test_pins_and_drafts_need_edit_and_stay_in_scope(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(FETCH, order())
        id = await server.ended("fetch", {"n": 5, "xs": []})
        async with AsyncExitStack() as stack:
            clients = RoleClients(server, stack)
            runner = await clients.connect("ada", "runner")
            editor = await clients.connect("bob", "editor", "fetch")
            pins = {"workflow": "fetch", "pins": {"first": 1}}
            rerun = f"/api/v1/executions/{id}/rerun"
            statuses = [
                (await runner.post("/api/v1/executions", json={"workflow": "fetch"})).status_code,
                (await runner.post("/api/v1/executions", json=pins)).status_code,
                (await runner.post(rerun, json={"node": "last", "pins": {"first": 1}})).status_code,
                (await runner.post(rerun, json={"node": "last", "definition": FETCH})).status_code,
                (await editor.post(rerun, json={"node": "last", "definition": FETCH})).status_code,
                (await editor.post(rerun, json={"node": "no", "definition": order()})).status_code,
            ]
            assert statuses[:5] == [202, 403, 403, 403, 202]
            assert statuses[5] in {403, 404}
            async for each in server.client.executions():
                await server.client.wait(each.execution_id, DEADLINE)

    run(tmp_path, work, key=BOOTSTRAP)
