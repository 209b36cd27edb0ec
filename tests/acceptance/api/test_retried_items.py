"""Retries of chosen failed items, and the idempotency key of a node with effects, over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rune.client import ApiError
from tests.support.api_server import RunningServer, run
from tests.support.documents import document, node

PARCELS: dict[str, Any] = document(
    [
        node("in", "input"),
        node("parcels", "split", {"input_array": "{{ $in.parcels }}"}),
        node("late", "conditional", {"expression": "$item == 2"}),
        node("lost", "fail", {"message": "lost", "code": "LOST"}),
        node("weigh", "conditional", {"expression": "$item > 2"}),
        node("heavy", "fail", {"message": "heavy", "code": "HEAVY"}),
        node("all", "aggregator"),
    ],
    "in>parcels",
    "parcels>late",
    "late>lost:true",
    "late>weigh:false",
    "weigh>heavy:true",
    "weigh>all:false",
    "lost>all",
    "heavy>all",
    id="parcels",
)
CALLS: dict[str, Any] = document(
    [node("in", "input"), node("call", "http", {"url": "http://127.0.0.1:1/"}), node("rest", "noop")],
    "in>call",
    "in>rest",
    id="calls",
)


async def refused(server: RunningServer, id: str, **chosen: Any) -> str:
    with pytest.raises(ApiError) as error:
        await server.client.retry(id, **chosen)
    return error.value.code


async def check_retries(server: RunningServer) -> None:
    client = server.client
    await server.deploy(PARCELS, CALLS)
    first = await client.start("parcels", {"parcels": [1, 2, 3, 4]})
    id = first.execution_id
    ended = await client.wait(id, 60)
    assert (ended.status, ended.failed_items) == ("completed", 3)

    again = await client.retry(id, failed_items=True, split="parcels", code="HEAVY")
    assert (await client.wait(again.execution_id, 60)).failed_items == 3
    assert await refused(server, id, code="LATE") == "NOTHING_TO_RUN"
    assert await refused(server, id, split="parcels", item="parcels:0") == "NOTHING_TO_RUN"
    assert await refused(server, id, split="letters") == "UNKNOWN_NODE"
    assert await refused(server, id, item="letters:0") == "BAD_ITEM"

    calls = (await client.start("calls")).execution_id
    await client.wait(calls, 60)
    (attempt, *_) = await client.attempts(calls, "call")
    assert attempt.idempotency_key == f"{calls}:call@/"
    assert {each.idempotency_key for each in await client.attempts(calls, "rest")} <= {""}


def test_failed_items_are_retried_by_split_item_and_code(tmp_path: Path) -> None:
    run(tmp_path, check_retries)
