"""ServedQueuesFilter: tokens of a queue without a worker are not sent again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.core.execution.token import Token
from rune.ports.processes import ProcessInfo
from rune.runtime.state_wrapper import ServedQueuesFilter

UNCLAIMED = [("x", Token(1), 5), ("y", Token(2), 5)]


class FakeState:
    async def unclaimed_tokens(self, limit: int) -> list[tuple[str, Token, int]]:
        return UNCLAIMED[:limit]

    async def next_due(self) -> int | None:
        return 7


class FakeRegistry:
    def __init__(self, *processes: ProcessInfo) -> None:
        self._processes = list(processes)

    async def list(self) -> list[ProcessInfo]:
        return self._processes


async def route(execution: str, token: Token) -> str:
    return "gpu" if token.node == 2 else "default"


def process(role: str, *queues: str) -> ProcessInfo:
    return ProcessInfo(name="m", host="h", pid=1, roles=(role,), version="1", started_at=0, queues=queues)


@pytest.mark.parametrize(
    ("processes", "resent"),
    [
        ([], []),
        ([process("scheduler", "default", "gpu")], []),
        ([process("worker", "default")], ["x"]),
        ([process("worker", "default"), process("worker", "gpu")], ["x", "y"]),
    ],
)
def test_tokens_of_queues_without_worker_are_left_out(
    processes: list[ProcessInfo], resent: list[str]
) -> None:
    state: Any = FakeState()
    registry: Any = FakeRegistry(*processes)
    postponed: list[str] = []
    wrapped = ServedQueuesFilter(state, route, registry, lambda execution, _: postponed.append(execution))
    assert [each[0] for each in asyncio.run(wrapped.unclaimed_tokens(10))] == resent
    assert postponed == [each[0] for each in UNCLAIMED if each[0] not in resent]


def test_all_tokens_are_returned_without_process_registry() -> None:
    state: Any = FakeState()
    wrapped = ServedQueuesFilter(state, route, None)
    assert asyncio.run(wrapped.unclaimed_tokens(10)) == UNCLAIMED
    assert asyncio.run(wrapped.next_due()) == 7, "every other method is passed on"
