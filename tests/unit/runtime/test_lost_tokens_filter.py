"""LostTokensFilter: a token is sent again only if its message is in no queue."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from rune.core.execution.decision import Timer
from rune.core.execution.token import Token
from rune.ports.processes import ProcessInfo
from rune.ports.state import DueTimer
from rune.runtime.state_wrapper import MAX_CLOCK_SKEW_MS, LostTokensFilter

UNCLAIMED = [("x", Token(1), 5), ("y", Token(2), 5)]
SEARCHED_SINCE = 100_000
LATER = SEARCHED_SINCE + MAX_CLOCK_SKEW_MS


class FakeState:
    async def unclaimed_tokens(self, limit: int) -> list[tuple[str, Token, int]]:
        return UNCLAIMED[:limit]

    async def due_timers(self, limit: int) -> list[DueTimer]:
        rebuilt = DueTimer("x", Timer("wait"), (Token(1),), None, 7)
        return [rebuilt, DueTimer("y", Timer("wait"), (Token(2),), None, 7, due=6)]

    async def next_due(self) -> int | None:
        return 7


class FakeRegistry:
    def __init__(self, *processes: ProcessInfo) -> None:
        self._processes = list(processes)

    async def list(self) -> list[ProcessInfo]:
        return self._processes


class FakeLanes:
    def __init__(self, *empty: str) -> None:
        self.empty = set(empty)

    async def lane_of(self, execution: str, token: Token, priority: int) -> tuple[str, str]:
        queue = "gpu" if token.node == 2 else "default"
        return queue, f"{queue}.lane"

    async def empty_lanes(self, lanes: Collection[str]) -> set[str]:
        return self.empty & set(lanes)


class FakeTimes:
    def __init__(self) -> None:
        self.resumed: list[str] = []

    async def since(self, lane: str, tokens: list[tuple[str, Token]]) -> list[int]:
        return [SEARCHED_SINCE] * len(tokens)

    async def resume(self, lane: str) -> bool:
        self.resumed.append(lane)
        return len(self.resumed) == 1

    async def found(self, lane: str, tokens: list[tuple[str, Token]], delivered: int) -> None: ...


def process(role: str, *queues: str, **delivered: int) -> ProcessInfo:
    newest = {f"{queue}.lane": at for queue, at in delivered.items()}
    return ProcessInfo(
        name="m", host="h", pid=1, roles=(role,), version="1", started_at=0, queues=queues, delivered=newest
    )


def lost_tokens(lanes: FakeLanes, *processes: ProcessInfo) -> tuple[LostTokensFilter, list[str], FakeTimes]:
    state: Any = FakeState()
    registry: Any = FakeRegistry(*processes)
    times: Any = FakeTimes()
    postponed: list[str] = []
    wrapped = LostTokensFilter(
        state, lanes, registry, times, lambda execution, _: postponed.append(execution)
    )
    return wrapped, postponed, times


@pytest.mark.parametrize(
    ("empty", "processes", "resent"),
    [
        (["default.lane", "gpu.lane"], [], []),
        (["default.lane", "gpu.lane"], [process("scheduler", "default", "gpu")], []),
        (["default.lane", "gpu.lane"], [process("worker", "default")], ["x"]),
        (["default.lane", "gpu.lane"], [process("worker", "default", "gpu")], ["x", "y"]),
        (["gpu.lane"], [process("worker", "default", "gpu")], ["y"]),
        ([], [process("worker", "default", "gpu")], []),
        ([], [process("worker", "default", "gpu", default=LATER, gpu=LATER - 1)], ["x"]),
        ([], [process("worker", "default", "gpu"), process("worker", "default", default=LATER)], ["x"]),
    ],
)
def test_only_tokens_whose_lane_has_passed_them_are_sent_again(
    empty: list[str], processes: list[ProcessInfo], resent: list[str]
) -> None:
    wrapped, postponed, _ = lost_tokens(FakeLanes(*empty), *processes)
    assert [each[0] for each in asyncio.run(wrapped.unclaimed_tokens(10))] == resent
    assert postponed == [each[0] for each in UNCLAIMED if each[0] not in resent]


def test_search_is_resumed_when_lane_stays_empty() -> None:
    async def go() -> list[str]:
        lanes = FakeLanes("gpu.lane")
        wrapped, _, times = lost_tokens(lanes, process("worker", "default", "gpu"))
        await wrapped.unclaimed_tokens(10)
        lanes.empty = {"default.lane", "gpu.lane"}
        assert times.resumed == []
        for _ in range(4):
            await wrapped.unclaimed_tokens(10)
        return times.resumed

    assert asyncio.run(go()) == ["default.lane"] * 2, "until there is nothing to search for"


def test_tokens_of_rebuilt_executions_are_left_to_the_search() -> None:
    wrapped, _, _ = lost_tokens(FakeLanes())
    fired = asyncio.run(wrapped.due_timers(10))
    assert [(each.execution, len(each.emitted)) for each in fired] == [("x", 0), ("y", 1)]
    assert asyncio.run(wrapped.next_due()) == 7, "every other method is passed on"
