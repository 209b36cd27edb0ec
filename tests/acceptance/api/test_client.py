"""Methods of the client: streams, histories, comparisons, parts of values and sessions."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from rune.client import ApiError, AsyncClient, Client, models
from tests.support.api_clients import BOOTSTRAP
from tests.support.api_server import HELLO, ITEMS, RunningServer, run


def test_history_has_the_events_that_watch_yields(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(ITEMS)
        id = await server.ended("items", {"items": [1, 2, 3]})

        found = [each async for each in server.client.history(id, page=2)]

        assert found == [each async for each in server.client.watch(id)]
        assert [each.number for each in found] == list(range(1, len(found) + 1))
        assert found[-1].kind == "execution.completed"
        assert [each async for each in server.client.history(id, after=len(found) - 1)] == found[-1:]

    run(tmp_path, work)


def test_rollup_view_has_counts_in_place_of_the_events_inside_of_splits(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(ITEMS)
        id = await server.ended("items", {"items": [1, 2, 4]})

        found = [each async for each in server.client.follow(id, view="rollup")]

        events = [each for each in found if isinstance(each, models.Event)]
        assert {each.lineage for each in events} == {()}
        assert events[-1].kind == "execution.completed"
        assert [each async for each in server.client.watch(id, view="rollup")] == events
        (split,) = await server.client.rollups(id)
        assert (split.split_node_id, split.items) == ("s", 3)
        assert split.nodes["twice"] == {"success": 2, "skipped": 1}
        assert (split.done, split.failed_items, split.counts) == (3, 1, {"success": 2, "failed": 1})
        assert [(each.node_id, each.lineage) for each in split.failures] == [("bad", "/s:0")]

    run(tmp_path, work)


def test_counts_of_splits_are_yielded_as_they_arrive() -> None:
    split = {"split_node_id": "s", "items": 3, "nodes": {"a": {"success": 2}}, "ended": 2, "rate": 1.5}
    content = (
        f"event: rollup\ndata: {json.dumps({'number': 7, 'splits': [{**split, 'failures': []}]})}\n\n"
        'data: {"number": 8, "at": "", "kind": "execution.completed"}\n\n'
    )
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, content=content.encode())

    with Client("http://localhost", transport=httpx.MockTransport(answer)) as client:
        rollup, event = client.follow("x1", after=6, view="rollup")

    assert isinstance(rollup, models.Rollup)
    assert (rollup.number, rollup.splits[0].nodes) == (7, {"a": {"success": 2}})
    assert isinstance(event, models.Event)
    assert dict(requests[0].url.params) == {"view": "rollup", "after": "6"}


def test_changes_yield_executions_that_start_and_end(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        changes = server.client.changes()
        # The first poll of the server begins with it: what happened before is not repeated.
        assert isinstance(await anext(changes), models.Missed)
        id = await server.ended("hello", {"name": "Ada"})
        async for each in changes:
            assert isinstance(each, models.ListedExecution)
            assert each.execution_id == id
            if each.ended:
                assert each.status == "completed"
                break
        await changes.aclose()  # type: ignore[attr-defined]

    run(tmp_path, work)


def test_changes_report_a_gap_after_a_lost_connection() -> None:
    answers = iter(
        [
            httpx.Response(200, content=b'event: execution\ndata: {"execution_id": "x1"'),
            httpx.Response(503, json={"code": "NOT_READY", "title": "", "status": 503}),
            httpx.Response(200, content=b"event: other\ndata: {}\n\n"),
        ]
    )

    with Client("http://localhost", transport=httpx.MockTransport(lambda request: next(answers))) as client:
        assert next(client.changes()) == models.Missed()


def test_differences_have_the_runs_with_their_outputs(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO)
        first = await server.ended("hello", {"name": "Ada"})
        second = await server.ended("hello", {"name": "Bob"})

        found = await server.client.differences(first, second)

        assert (found.before, found.after, found.same_input, found.definition) == (first, second, False, [])
        (run,) = [each for each in found.nodes if each.node_id == "out"]
        assert run.before is not None
        assert run.after is not None
        assert (run.fields, run.before["output"], run.after["output"]) == (
            ["output"],
            "Hello, Ada!",
            "Hello, Bob!",
        )

    run(tmp_path, work)


def test_parts_of_blobs_and_ranges_of_items_are_read(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(ITEMS)
        id = await server.ended("items", {"items": [1, 2, 4, 5]})
        await server.engine.backend.blob.put(
            f"{id}/mine/rows", b'{"rows": [{"name": "Ada"}, {"name": "Bob"}]}'
        )

        assert (await server.client.value_part(id, blob="mine/rows", pointer="/rows/1/name")).value == "Bob"
        (match,) = (await server.client.find_in_value(id, "ada", blob="mine/rows")).matches
        assert match.pointer == "/rows/0/name"
        packed = await server.client.packed_items(id, "s")
        assert (len(packed), len(set(packed))) == (4, 2)
        assert await server.client.packed_items(id, "s", offset=1, limit=2) == packed[1:3]

    run(tmp_path, work)


def test_layout_of_a_check_has_the_given_direction_and_size(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        right = (await server.client.check(HELLO, layout=True)).layout
        down = (await server.client.check(HELLO, layout=True, direction="down", width=100, height=40)).layout
        assert right is not None
        assert down is not None
        assert right.nodes["in"].y == right.nodes["out"].y
        assert down.nodes["in"].x == down.nodes["out"].x
        assert down.nodes["out"].y - down.nodes["in"].y < right.nodes["out"].x - right.nodes["in"].x

    run(tmp_path, work)


def test_session_replaces_the_key_of_the_client_until_it_ends(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        async with AsyncClient(server.url, key=BOOTSTRAP) as client:
            assert (await client.me()).authentication == "key"
            assert (await client.create_session()).authentication == "session"
            assert (await client.me()).authentication == "session"
            assert (await client.deploy(HELLO)).version == 1
            await client.end_session()
            with pytest.raises(ApiError) as refused:
                await client.me()
            assert refused.value.status == 401

    run(tmp_path, work, key=BOOTSTRAP)


def test_session_on_a_server_without_keys_changes_nothing(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        assert (await server.client.create_session()).authentication == "none"
        assert (await server.client.deploy(HELLO)).version == 1

    run(tmp_path, work)
