"""While nobody reads a queue, what waits there is not sent a second time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.core.execution.token import Token
from rune.ports.processes import ProcessInfo
from rune.runtime.messaging.state_middleware import ServedQueuesFilter

UNCLAIMED = [("x", Token(1), 5), ("y", Token(2), 5)]


class State:
    async def unclaimed_tokens(self, limit: int) -> list[tuple[str, Token, int]]:
        return UNCLAIMED[:limit]

    async def next_due(self) -> int | None:
        return 7


class Fleet:
    def __init__(self, *members: ProcessInfo) -> None:
        self._members = list(members)

    async def list(self) -> list[ProcessInfo]:
        return self._members


async def route(execution: str, token: Token) -> str:
    return "gpu" if token.node == 2 else "default"


def member(role: str, *queues: str) -> ProcessInfo:
    return ProcessInfo(name="m", host="h", pid=1, roles=(role,), version="1", started_at=0, queues=queues)


@pytest.mark.parametrize(
    ("members", "again"),
    [
        ([], []),
        ([member("scheduler", "default", "gpu")], []),
        ([member("worker", "default")], ["x"]),
        ([member("worker", "default"), member("worker", "gpu")], ["x", "y"]),
    ],
)
def test_resend_leaves_out_queues_without_a_worker(members: list[ProcessInfo], again: list[str]) -> None:
    state: Any = State()
    fleet: Any = Fleet(*members)
    wrapped = ServedQueuesFilter(state, route, fleet)
    assert [each[0] for each in asyncio.run(wrapped.unclaimed_tokens(10))] == again


def test_resend_without_a_registry_sends_everything() -> None:
    state: Any = State()
    wrapped = ServedQueuesFilter(state, route, None)
    assert asyncio.run(wrapped.unclaimed_tokens(10)) == UNCLAIMED
    assert asyncio.run(wrapped.next_due()) == 7, "every other method is passed on"
