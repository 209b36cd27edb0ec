"""Event streams deliver every event once across reconnects and slow subscribers."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect

from rune.runtime.queries.overview import Overview
from rune.server.live import feed
from rune.server.live.feed import EncodedEvent
from rune.server.routes.executions import live
from rune.server.routes.executions.live import EventSubscription
from rune.server.views import overviews
from tests.support.api_server import DEADLINE, HELLO, ITEMS, WAITS, RawStream, RunningServer, run
from tests.support.async_test import async_test
from tests.support.waiting import until


async def read_numbers(opened: RawStream, count: int) -> list[int]:
    """Read the numbers of the next events."""
    found: list[int] = []
    async for event in opened.events():
        found.append(event["number"])
        if len(found) == count:
            break
    return found


async def send_signals(server: RunningServer, execution: str, count: int) -> None:
    for _ in range(count):
        await server.engine.services.executions.signal(execution, "other")


def test_stream_delivers_all_events_until_end(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        id = (await server.client.start("waits")).execution_id
        opened = await server.stream(f"/executions/{id}/events")
        assert await opened.status() == 200
        await server.client.signal(id, "go")
        kinds = [event["kind"] async for event in opened.events()]
        assert kinds[0] == "execution.accepted"
        assert kinds[-1] == "execution.completed"
        assert "node.waiting" in kinds
        page = await server.get(f"/executions/{id}/history?limit=1000")
        assert [each["kind"] for each in page["events"]] == kinds
        assert [each["number"] for each in page["events"]] == list(range(1, len(kinds) + 1))
        over = await server.http.get(
            f"/api/v1/executions/{id}/events", headers={"Last-Event-ID": str(len(kinds))}
        )
        assert over.status_code == 204

    run(tmp_path, work)


def test_reconnect_neither_misses_nor_repeats_events(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        id = (await server.client.start("waits")).execution_id
        seen: list[int] = []
        for turn in range(12):
            opened = await server.stream(f"/executions/{id}/events", seen[-1] if seen else None)
            speaking = asyncio.create_task(send_signals(server, id, 10))
            seen += await read_numbers(opened, 1 + turn % 7)
            opened.break_off()
            await speaking
        await server.client.signal(id, "go")
        last = await server.stream(f"/executions/{id}/events", seen[-1])
        async for event in last.events():
            seen.append(event["number"])
        assert seen == list(range(1, len(seen) + 1))
        assert len(seen) > 120

    run(tmp_path, work)


def test_subscriber_behind_ring_reads_from_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MAX_RING_EVENTS", 16)
    monkeypatch.setattr(feed, "MARK_INTERVAL", 8)

    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        id = (await server.client.start("waits")).execution_id
        first = await server.stream(f"/executions/{id}/events")
        await read_numbers(first, 2)
        await send_signals(server, id, 100)
        for after in (0, 1, 2, 7, 8, 9, 30, 64, 95, 101):
            opened = await server.stream(f"/executions/{id}/events", after)
            wanted = 102 - after
            assert await read_numbers(opened, wanted) == list(range(after + 1, 103))
            page = await server.get(f"/executions/{id}/history?after={after}&limit=5")
            numbers = [each["number"] for each in page["events"]]
            assert numbers == list(range(after + 1, after + 1 + len(numbers)))
            assert page["next"] == (numbers[-1] if numbers[-1] < 102 else None)
            opened.break_off()

    run(tmp_path, work)


def test_streams_from_the_beginning_share_what_is_read_from_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the chunks of the execution do not all fit into the cache."""
    monkeypatch.setattr(feed, "MAX_RING_EVENTS", 16)
    monkeypatch.setattr(feed, "MARK_INTERVAL", 8)
    monkeypatch.setattr(feed, "MAX_MERGED_BYTES", 12_000)
    loads = 0
    load_chunk = feed.ExecutionFeed.load_chunk

    async def counted(self: feed.ExecutionFeed, after: int) -> tuple[bytes, int]:
        nonlocal loads
        loads += 1
        return await load_chunk(self, after)

    monkeypatch.setattr(feed.ExecutionFeed, "load_chunk", counted)

    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        id = (await server.client.start("waits")).execution_id
        first = await server.stream(f"/executions/{id}/events")
        await read_numbers(first, 2)
        await send_signals(server, id, 128)
        streams, chunks = 30, 130 // 8
        for _ in range(streams):
            opened = await server.stream(f"/executions/{id}/events", 0)
            assert await read_numbers(opened, 130) == list(range(1, 131))
            opened.break_off()
        assert chunks <= loads <= streams * chunks / 2

    run(tmp_path, work)


def test_history_is_read_backwards_by_kind_and_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MAX_RING_EVENTS", 16)
    monkeypatch.setattr(feed, "MARK_INTERVAL", 8)

    async def pages(server: RunningServer, path: str) -> list[list[dict[str, Any]]]:
        found: list[list[dict[str, Any]]] = []
        before: int | None = None
        while before is not None or not found:
            page = await server.get(path if before is None else f"{path}&before={before}")
            found.append(page["events"])
            before = page["next"]
        return found

    async def work(server: RunningServer) -> None:
        await server.deploy(ITEMS)
        id = await server.ended("items", {"items": list(range(30))})
        base = f"/executions/{id}/history"
        everything = (await server.get(f"{base}?limit=1000"))["events"]
        newest = everything[::-1]
        for limit in (1, 7, 8, 9, 1_000):
            page = await server.get(f"{base}?limit={limit}&before={2**53}")
            assert page["events"] == newest[:limit]
            assert page["next"] == (newest[limit - 1]["number"] if limit < len(newest) else None)
        failed = await pages(server, f"{base}?limit=7&kind=node.failed")
        backwards = [each for page in failed for each in page]
        assert backwards == [each for each in newest if each["kind"] == "node.failed"]
        assert len(backwards) == 15
        of_node = [each for page in await pages(server, f"{base}?limit=4&node=bad") for each in page]
        assert of_node == [each for each in newest if each["node_id"] == "bad"]
        recent = await server.get(f"{base}?limit=1000&node=bad&after={of_node[5]['number']}")
        assert (recent["events"], recent["next"]) == (of_node[:5], None)
        by_client = server.client.history(id, kind="node.failed", node="bad", page=4)
        assert [each.number async for each in by_client] == [each["number"] for each in backwards]
        none = await server.get(f"{base}?kind=node.waiting")
        assert (none["events"], none["next"]) == ([], None)

        # A request looks at a limited number of events; the next one continues there.
        monkeypatch.setattr(feed, "MAX_SEARCHED_EVENTS", 10)
        found = await pages(server, f"{base}?kind=execution.accepted")
        assert [len(page) for page in found[:-1]] == [0] * (len(found) - 1)
        assert len(found) == -(-len(everything) // 10)
        assert [each["number"] for each in found[-1]] == [1]

    run(tmp_path, work)


def test_slow_subscriber_does_not_block_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MAX_RING_EVENTS", 64)
    monkeypatch.setattr(live, "STALL_TIMEOUT_S", 0.5)

    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        id = (await server.client.start("waits")).execution_id
        path = f"/executions/{id}/events"
        idle = [await server.stream(path, window=4096) for _ in range(3)]
        active = await server.stream(path)
        listening = asyncio.create_task(read_numbers(active, 1_502))
        for _ in range(75):
            await asyncio.gather(
                *(server.engine.services.executions.signal(id, "o" * 190) for _ in range(20))
            )
        assert await asyncio.wait_for(listening, DEADLINE) == list(range(1, 1_503))
        # A subscriber that did not read gets the missed events, in order, from where it stopped.
        for each in idle:
            received = await read_numbers(each, 200)
            assert received == list(range(1, len(received) + 1))
            resumed = await server.stream(path, received[-1])
            assert await read_numbers(resumed, 1_502 - received[-1]) == list(range(received[-1] + 1, 1_503))

    run(tmp_path, work)


def test_websocket_stream_resumes_after_given_event(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        id = (await server.client.start("waits")).execution_id
        address = server.url.replace("http", "ws") + f"/api/v1/executions/{id}/events"
        async with connect(address) as socket:
            first = [json.loads(await socket.recv()) for _ in range(2)]
        assert [each["number"] for each in first] == [1, 2]
        async with connect(f"{address}?after=2") as socket:
            await server.client.signal(id, "go")
            rest = [json.loads(text) async for text in socket]
        assert [each["number"] for each in rest] == list(range(3, 3 + len(rest)))
        assert rest[-1]["kind"] == "execution.completed"
        unknown = server.url.replace("http", "ws") + "/api/v1/executions/nobody/events"
        with pytest.raises(Exception, match=r"403|404"):
            await connect(unknown)

    run(tmp_path, work)


@async_test
async def test_websocket_that_was_closed_is_sent_nothing_more() -> None:
    class Closed(WebSocket):
        """Sends without suspending, as a server does whose client is gone."""

        async def send_text(self, data: str) -> None:
            sent.append(data)

    class Replayed(EventSubscription):
        async def pieces(self) -> AsyncGenerator[list[EncodedEvent] | bytes | None, None]:
            for start in range(0, 100_000, 1_000):
                yield [EncodedEvent(start + at, False, b"{}") for at in range(1_000)]

        def __init__(self) -> None:
            self.disconnected = False

    async def receive() -> Message:
        return {"type": "websocket.disconnect"}

    async def send(message: Message) -> None:
        raise AssertionError(message)

    sent: list[str] = []
    subscriber = Replayed()
    asyncio.get_running_loop().call_soon(subscriber.__setattr__, "disconnected", True)
    socket = Closed({"type": "websocket"}, receive, send)

    await live.send_events(socket, subscriber, None)

    assert 0 < len(sent) <= 2 * live.EVENTS_PER_TURN


async def follow_counts(server: RunningServer) -> str:
    """Follow the roll-ups of a new execution to its end; return its id."""
    id = (await server.client.start("items", {"items": list(range(20))})).execution_id
    opened = await server.stream(f"/executions/{id}/events?view=rollup")
    assert any("splits" in event for event in [event async for event in opened.events()])
    return id


def kept_overviews() -> int:
    gc.collect()
    return sum(isinstance(each, Overview) for each in gc.get_objects())


def test_counts_of_executions_are_dropped_with_the_last_follower(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(ITEMS)
        before = kept_overviews()
        followed = [await follow_counts(server) for _ in range(3)]
        await until(lambda: not server.master.feeds.executions)
        assert kept_overviews() == before

        await server.get(f"/executions/{followed[0]}/graph")
        opened = await server.stream(f"/executions/{followed[0]}/events?view=rollup&after=1")
        assert [event async for event in opened.events()]
        await until(lambda: not server.master.feeds.executions)
        assert kept_overviews() == before + 1  # for the next graph

    run(tmp_path, work)


def test_counts_of_followed_executions_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overviews, "MAX_CACHED_BYTES", 1)

    async def work(server: RunningServer) -> None:
        await server.deploy(ITEMS)
        before = kept_overviews()
        async with AsyncExitStack() as followers:
            for _ in range(4):
                id = (await server.client.start("items", {"items": [1, 2]})).execution_id
                await server.client.wait(id, DEADLINE)
                feed = await followers.enter_async_context(server.master.feeds.subscribe(id))
                assert b'"items":2' in await feed.rollup()
                assert kept_overviews() == before + 1

    run(tmp_path, work)


def test_rollup_view_summarizes_split_items(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(ITEMS)
        id = (await server.client.start("items", {"items": list(range(400))})).execution_id
        opened = await server.stream(f"/executions/{id}/events?view=rollup")
        found = [event async for event in opened.events()]
        events = [each for each in found if "kind" in each]
        rollups = [each for each in found if "splits" in each]
        assert [each["lineage"] for each in events if each["lineage"]] == []
        assert events[-1]["kind"] == "execution.completed"
        assert rollups[-1]["splits"][0]["nodes"] == {
            "odd": {"success": 400},
            "bad": {"failed": 200, "skipped": 200},
            "twice": {"success": 200, "skipped": 200},
        }
        assert rollups[-1]["splits"][0]["counts"] == {"success": 200, "failed": 200}
        assert len(found) < 100

    run(tmp_path, work)


def test_fleet_stream_reports_status_changes(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(HELLO, WAITS)
        old = (await server.client.start("waits")).execution_id
        opened = await server.stream("/events")
        assert await opened.status() == 200
        result: dict[str, list[str]] = {}

        async def listen() -> None:
            async for each in opened.events():
                if "execution_id" not in each:
                    continue
                result.setdefault(each["execution_id"], []).append(each["status"])
                if len(result) == 4 and all(each[-1] == "completed" for each in result.values()):
                    return

        listening = asyncio.create_task(listen())
        await until(lambda: server.master.fleet.following)
        new = [await server.ended("hello", {"name": "x"}) for _ in range(3)]
        await server.client.signal(old, "go")
        await asyncio.wait_for(listening, DEADLINE)
        assert result[old] == ["completed"]
        assert set(result) == {old, *new}

    run(tmp_path, work)


def test_fleet_stream_opened_again_follows_an_unchanged_store(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> None:
        await server.deploy(WAITS)
        for _ in range(2):
            opened = await server.stream("/events")
            assert await opened.status() == 200
            await asyncio.wait_for(until(lambda: server.master.fleet.following), DEADLINE)
            opened.break_off()
            await until(lambda: not server.master.fleet.following)

    run(tmp_path, work)


def test_stop_closes_open_streams(tmp_path: Path) -> None:
    async def work(server: RunningServer) -> Any:
        await server.deploy(WAITS)
        id = (await server.client.start("waits")).execution_id
        opened = await server.stream(f"/executions/{id}/events")
        await read_numbers(opened, 2)
        return opened

    run(tmp_path, work)
