"""A backlog: tokens in lanes that are served slowly, while lanes and the state are lost.

What decides which tokens are sent again is `LostTokensFilter`. A token is sent again only if no message of it waits:
then a lane holds at most one message per token, however long it takes to serve it. In the end every token is served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from random import Random
from typing import Any

from rune.core.execution.decision import Timer
from rune.core.execution.token import Token
from rune.ports.processes import ProcessInfo
from rune.ports.state import DueTimer
from rune.runtime.state_wrapper import LostTokensFilter
from tests.simulation.journal import ViolationError

BACKLOG_INTERVAL = 10
"""Every n-th seed simulates a backlog too."""

EXECUTION = "x"
UNSENT_MS = 60_000  # a token that was sent comes up as unclaimed after that time
LEASE_MS = 7_500
SWEEP_MS = 1_000
SKEW_MS = 2_500  # of the clock of a process, to either side
PAUSES_MS = (10, 500, 3_000, 20_000, 70_000)
MAX_TURNS = 5_000


class Backlog:
    """The lanes, the state and the clock of one simulation: the ports that the filter uses."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(f"backlog-{seed}")
        self.now = 1_700_000_000_000
        self.lanes: dict[str, deque[tuple[Token, int]]] = {f"lane{number}": deque() for number in range(2)}
        self.skews = [rng.randint(-SKEW_MS, SKEW_MS) for _ in range(3)]
        self.unsent = [Token(number) for number in range(rng.choice((1, 5, 40)))]
        self.due: dict[Token, int] = {}
        self.delivered: dict[str, int] = {}
        self.reported: dict[str, int] = {}
        self.rebuilt: list[Token] = []
        self.searches: dict[str, dict[Token, int]] = {}
        self.losses = rng.choice((0, 1, 4))
        self.filter = LostTokensFilter(self, self, self, self, self._postpone)  # type: ignore[arg-type]

    def run(self) -> None:
        """Simulate until every token is served; raise ViolationError."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        for _ in range(MAX_TURNS):
            if not self.unsent and not self.due:
                return
            self.now += self.rng.choice(PAUSES_MS) if self.rng.random() < 0.2 else SWEEP_MS
            if self.unsent and self.rng.random() < 0.5:
                self._send(self.unsent.pop())
            for _ in range(self.rng.choice((0, 0, 0, 1, 3))):
                self._serve()
            if self.rng.random() < 0.3:
                self.reported = dict(self.delivered)
            if self.losses and self.rng.random() < 0.05:
                self.losses -= 1
                self.rng.choice((self._lose_lane, self._lose_state))()
            await self._sweep()
        raise ViolationError(f"hung: {len(self.due)} tokens of a backlog were never served")

    def _lane(self, token: Token) -> str:
        return f"lane{token.node % len(self.lanes)}"

    def _send(self, token: Token) -> None:
        clock = self.now + self.rng.choice(self.skews)
        self.lanes[self._lane(token)].append((token, clock // 1000 * 1000))
        self.due[token] = self.now + UNSENT_MS

    def _serve(self) -> None:
        """A worker receives the oldest message of a lane. It runs the token, or dies with it."""
        lane = self.rng.choice(list(self.lanes))
        if not self.lanes[lane]:
            return
        token, sent_at = self.lanes[lane].popleft()
        self.delivered[lane] = max(self.delivered.get(lane, 0), sent_at)
        if token in self.due and self.losses and self.rng.random() < 0.1:
            self.losses -= 1
            self.due[token] = self.now + LEASE_MS
        else:
            self.due.pop(token, None)

    def _lose_lane(self) -> None:
        self.rng.choice(list(self.lanes.values())).clear()

    def _lose_state(self) -> None:
        """The executions are rebuilt: whatever has no result may be sent or not."""
        self.rebuilt = list(self.due)
        self.due = dict.fromkeys(self.due, self.now + LEASE_MS)
        self.searches.clear()

    async def _sweep(self) -> None:
        fired = await self.filter.due_timers(100)
        found = [token for each in fired for token in each.emitted]
        found += [token for _, token, _ in await self.filter.unclaimed_tokens(100)]
        for token in found:
            if any(waiting == token for waiting, _ in self.lanes[self._lane(token)]):
                raise ViolationError(f"{token} is sent again while its message waits")
            self._send(token)

    def _postpone(self, _execution: str, tokens: Sequence[Token]) -> None:
        for token in tokens:
            self.due[token] = self.now + UNSENT_MS

    # The state.

    async def due_timers(self, _limit: int) -> list[DueTimer]:
        rebuilt, self.rebuilt = self.rebuilt, []
        tokens = tuple(each for each in rebuilt if each in self.due)
        return [DueTimer(EXECUTION, Timer("wait"), tokens, None, self.now)] if tokens else []

    async def unclaimed_tokens(self, _limit: int) -> list[tuple[str, Token, int]]:
        return [(EXECUTION, token, 5) for token, due in self.due.items() if due <= self.now]

    # The lanes, and the processes that read them.

    async def lane_of(self, _execution: str, token: Token, _priority: int) -> tuple[str, str]:
        return "default", self._lane(token)

    async def empty_lanes(self, lanes: Collection[str]) -> set[str]:
        return {each for each in lanes if not self.lanes[each]}

    async def list(self) -> list[ProcessInfo]:
        worker: dict[str, Any] = {"name": "w", "host": "h", "pid": 1, "roles": ("worker",), "version": "1"}
        return [ProcessInfo(**worker, started_at=0, queues=("default",), delivered=dict(self.reported))]

    # Since when a token is searched for.

    async def since(self, lane: str, tokens: Sequence[tuple[str, Token]]) -> Sequence[int]:
        noted = self.searches.setdefault(lane, {})
        return [noted.setdefault(token, self.now) for _, token in tokens]

    async def resume(self, lane: str) -> bool:
        noted = self.searches.pop(lane, {})
        for token in noted:
            if token in self.due:
                self.due[token] = min(self.due[token], self.now)
        return bool(noted)

    async def found(self, lane: str, tokens: Sequence[tuple[str, Token]], _delivered: int) -> None:
        for _, token in tokens:
            self.searches.get(lane, {}).pop(token, None)


def run_backlog(seed: int) -> bool:
    """Run the backlog of a seed, if it has one; return whether it has."""
    if seed % BACKLOG_INTERVAL:
        return False
    Backlog(seed).run()
    return True
