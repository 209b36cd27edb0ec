"""Live hints between processes: which nodes run now, and the newest lines that they log.

A hint is no fact: it is neither stored nor counted, and any may be lost. Workers report only what a process asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from rune.core.execution.token import Path


class RunningNode(msgspec.Struct, frozen=True, array_like=True):
    """A node that a worker runs now. `since` is when this attempt began, in the time of the execution (epoch ms);
    `progress` is what the node last reported."""

    node: int
    path: Path
    attempt: int
    since: int
    worker: str = ""
    progress: str = ""


class LoggedLine(msgspec.Struct, frozen=True, array_like=True):
    """A line that a run of a node logged at a time (epoch ms)."""

    node: int
    path: Path
    attempt: int
    at: int
    level: str
    message: str


class LiveReport(msgspec.Struct, frozen=True):
    """What one process knows to run now, by execution. Each execution that was asked for is included, also without a
    running node. `lines` were logged since its previous report."""

    sender: str
    running: dict[str, list[RunningNode]]
    lines: dict[str, list[LoggedLine]] = {}


class RunningSnapshot(msgspec.Struct, frozen=True):
    """The nodes of an execution that run now. Not `complete`: a worker did not answer in time."""

    nodes: list[RunningNode]
    complete: bool = True


RunningQuery = Callable[[str], Awaitable[RunningSnapshot]]
"""Returns what runs now in an execution."""


class LiveChannel(Protocol):
    """Carries requests to workers, and their reports to all processes that follow. StoreUnavailableError if it is
    away."""

    async def ask(self, executions: Sequence[str]) -> int:
        """Ask all workers to report about these executions now and for some seconds. Return how many were reached."""

    async def report(self, report: LiveReport) -> None:
        """Send a report to every process that listens."""

    async def serve(self, on_ask: Callable[[Sequence[str]], None]) -> None:
        """Call `on_ask` with the executions of each request, until cancelled."""

    async def listen(self, on_report: Callable[[LiveReport], None], listening: asyncio.Event) -> None:
        """Call `on_report` with each report, until cancelled. Set `listening` once reports arrive."""
