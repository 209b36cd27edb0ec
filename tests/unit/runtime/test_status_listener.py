"""What an API process learns from status messages."""

from __future__ import annotations

import asyncio

import msgspec

from rune.core.plan.model import Plan
from rune.runtime.messaging.status_listener import StatusListener
from rune.testing.harness import compiled
from tests.support.workflows import of_type, workflow

ITEMS = workflow(
    "start>s s>x x>all",
    s=of_type("split", input_array="{{ [1, 2] }}"),
    x=of_type("noop"),
    all=of_type("aggregator"),
)


def status(node: str, kind: str, item: int | None = None, execution: str = "e1") -> dict[str, object]:
    frames = [] if item is None else [{"split_node_id": "s", "item_index": item}]
    return {
        "workflow_id": "hazard",
        "execution_id": execution,
        "node_id": node,
        "status": kind,
        "executed_at": "2026-01-01T00:00:00.000Z",
        "duration_ms": 0,
        "lineage_stack": frames,
        "metadata": {"worker": "w1"},
    }


def listening(wakes: list[str], followed: tuple[str, ...] = ("e1",)) -> StatusListener:
    async def plan_of(execution: str) -> Plan:
        return compiled(ITEMS)

    made = StatusListener("api statuses", plan_of, followed, lambda: wakes.append("woken"))
    made.followed = frozenset(followed)
    return made


def encoded(*messages: dict[str, object]) -> list[bytes]:
    return [msgspec.json.encode(each) for each in messages]


def test_running_status_is_reported_until_the_node_ends() -> None:
    listener = listening([])
    index = compiled(ITEMS).index

    asyncio.run(listener.on_statuses(encoded(status("x", "running", 0), status("x", "running", 1))))
    found = listener.report(["e1"]).running["e1"]
    assert [(each.node, each.path, each.worker) for each in found] == [
        (index["x"], (index["s"], 0), "w1"),
        (index["x"], (index["s"], 1), "w1"),
    ]

    asyncio.run(listener.on_statuses(encoded(status("x", "success", 0))))
    assert [each.path for each in listener.report(["e1"]).running["e1"]] == [(index["s"], 1)]


def test_batch_of_statuses_is_decoded() -> None:
    listener = listening([])
    batch = msgspec.json.encode([status("x", "running", 0), status("x", "running", 1)])

    asyncio.run(listener.on_statuses([batch]))

    assert len(listener.report(["e1"]).running["e1"]) == 2


def test_malformed_and_foreign_messages_are_dropped() -> None:
    listener = listening([])
    foreign = encoded(status("nobody", "running"), status("x", "running", 0, execution="e2"))

    asyncio.run(listener.on_statuses([b"\xff", b"[[[", b"", b"[1]", *foreign]))
    asyncio.run(listener.on_completion(b'{"execution_id":"x\xff1"}'))

    assert listener.report(["e1", "e2"]).running == {"e1": [], "e2": []}


def test_completion_wakes_only_followers_of_its_execution() -> None:
    wakes: list[str] = []
    listener = listening(wakes)
    completion = {
        "workflow_id": "hazard",
        "status": "completed",
        "final_context": {},
        "completed_at": "2026-01-01T00:00:00.000Z",
        "total_duration_ms": 1,
    }

    asyncio.run(listener.on_completion(msgspec.json.encode({**completion, "execution_id": "e2"})))
    assert wakes == []

    asyncio.run(listener.on_completion(msgspec.json.encode({**completion, "execution_id": "e1"})))
    assert wakes == ["woken"]

    listener.followed = frozenset()  # the client reads the events, not what runs now
    asyncio.run(listener.on_completion(msgspec.json.encode({**completion, "execution_id": "e1"})))
    assert wakes == ["woken", "woken"]
