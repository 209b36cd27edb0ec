"""While nobody reads a queue, what waits there is not sent a second time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.core.execution.token import Token
from rune.ports.processes import ProcessInfo
from rune.runtime.messaging.state_middleware import ServedQueuesFilter

UNHELD = [("x", Token(1), 5), ("y", Token(2), 5)]


class State:
    async def unheld(self, limit: int) -> list[tuple[str, Token, int]]:
        return UNHELD[:limit]

    async def claim(self) -> None: ...

    async def apply(self) -> None: ...

    async def server(self) -> str:
        return "its other verbs are there"


class Fleet:
    def __init__(self, *members: ProcessInfo) -> None:
        self._members = list(members)

    async def members(self) -> list[ProcessInfo]:
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
def test_only_what_somebody_reads_is_sent_again(members: list[ProcessInfo], again: list[str]) -> None:
    state: Any = State()
    fleet: Any = Fleet(*members)
    around = ServedQueuesFilter(state, route)
    around.follows(fleet)
    assert [each[0] for each in asyncio.run(around.unheld(10))] == again


def test_who_sees_nobody_because_it_cannot_look_sends_everything() -> None:
    state: Any = State()
    around = ServedQueuesFilter(state, route)
    assert asyncio.run(around.unheld(10)) == UNHELD
    assert asyncio.run(around.server()) == "its other verbs are there"
