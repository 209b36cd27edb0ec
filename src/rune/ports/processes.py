"""Processes: their registry, what they renew and report, and the owner process of an embedded database.

The registry is for operators; leases, not heartbeats, decide which worker runs a token. An embedded database has one
owner process, the only one that writes. Other processes send it their calls, and take over the ownership when it exits.
Live hints tell which nodes run now, with the newest lines that they log. A hint is no fact: it is neither stored nor
counted, and any may be lost. Workers report only what a process asked for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from rune.core.execution.token import Path
from rune.ports.journal import StoreUnavailableError
from rune.ports.state import Fence

HEARTBEAT_S = 5.0
"""Default interval between two heartbeats of a process, in seconds."""

EXPIRY_S = 15.0
"""Default time without a heartbeat after which a process is no longer listed, in seconds."""


HELD_S = 10.0
"""An execution that blocks an event loop for so long is noted."""


class ProcessInfo(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    host: str
    pid: int
    roles: tuple[str, ...]
    version: str
    build: str = ""  # tells builds of one version apart
    started_at: int
    seen_at: int = 0
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()  # node types that it can run
    slots: int = 0
    busy: int = 0
    draining: bool = False  # it receives no more work
    delivered: dict[
        str, int
    ] = {}  # by lane of a broker: when the newest message that it received was sent (epoch ms)
    heartbeat_s: float = HEARTBEAT_S
    expiry_s: float = EXPIRY_S


class BlockMarks(Protocol):
    """Which executions blocked the event loop of a process, and which are in quarantine for it; other processes and the
    next one read them. The thread that watches a loop calls `suspect`, `clear` and `add`, while the loop is blocked."""

    def suspect(self, execution: str) -> None:
        """Note that an execution has blocked the loop for a second. If the process dies before `clear`, this counts as
        a block, where other processes see it."""

    def clear(self, execution: str) -> None:
        """Forget what `suspect` noted: the loop runs again."""

    def add(self, execution: str) -> int:
        """Count a block that lasts for long; return their number."""

    def blocks(self) -> Mapping[str, int]:
        """Return the number of blocks of each execution that is not in quarantine. Does not wait."""

    async def quarantine(self, execution: str, reason: str) -> None:
        """Note that an execution is in quarantine."""

    def quarantined(self) -> Mapping[str, str]:
        """Return the executions in quarantine, each with the reason. Does not wait."""

    async def forget(self, execution: str) -> None:
        """Forget all of an execution."""

    async def refresh(self) -> None:
        """Read what other processes noted."""

    async def tidy(self) -> None:
        """Forget the executions that have ended."""


class MemoryBlockMarks:
    """Marks that end with the process."""

    def __init__(self) -> None:
        self._blocks: dict[str, int] = {}
        self._quarantined: dict[str, str] = {}
        self._lock = threading.Lock()

    def suspect(self, execution: str) -> None:
        """Only a process that other processes replace needs it."""

    def clear(self, execution: str) -> None:
        """Nothing was noted."""

    def add(self, execution: str) -> int:
        with self._lock:
            self._blocks[execution] = count = self._blocks.get(execution, 0) + 1
            self._changed()
            return count

    def blocks(self) -> Mapping[str, int]:
        with self._lock:
            return dict(self._blocks)

    async def quarantine(self, execution: str, reason: str) -> None:
        with self._lock:
            self._blocks.pop(execution, None)
            self._quarantined[execution] = reason
            self._changed()

    def quarantined(self) -> Mapping[str, str]:
        with self._lock:
            return dict(self._quarantined)

    async def forget(self, execution: str) -> None:
        with self._lock:
            removed = self._blocks.pop(execution, None), self._quarantined.pop(execution, None)
            if removed != (None, None):
                self._changed()

    async def refresh(self) -> None:
        """No other process notes anything."""

    async def tidy(self) -> None:
        """They end with the process."""

    def _changed(self) -> None:
        """Keep the marks, under the lock."""


class ProcessRegistry(Protocol):
    """The recently active processes of a cluster."""

    async def heartbeat(self, member: ProcessInfo) -> bool:
        """Record that a process is alive, with the time of the store; return whether it is asked to drain. One that
        drains and that the registry does not know is still asked to."""

    async def request_drain(self, name: str, draining: bool) -> None:
        """Ask a process to receive no more work, or to receive work again: its next heartbeat returns the request."""

    async def leave(self, name: str) -> None:
        """Remove a process that shuts down."""

    async def list(self) -> list[ProcessInfo]:
        """Return the processes whose last heartbeat is at most their `expiry_s` old, the longest-running first."""


class Keepalive(Protocol):
    """Renews what this process holds, over connections of its own. Used in one thread only.

    A node can block the event loop that runs it. Leases, deliveries and the entry in the registry are therefore renewed
    in another thread, with connections that belong to the event loop of that thread.
    """

    processes: ProcessRegistry

    async def renew_lease(self, execution: str, node: int, path: Path, fence: Fence) -> bool:
        """Extend a lease, as `State.renew` does."""

    async def renew_deliveries(self) -> None:
        """Tell the queue that the deliveries of this process are still being processed."""


def served_queues(processes: Iterable[ProcessInfo]) -> frozenset[str]:
    """Return the queues that workers receive from."""
    workers = (each for each in processes if "worker" in each.roles and not each.draining)
    return frozenset(queue for each in workers for queue in each.queues)


OpenKeepalive = Callable[[], AbstractAsyncContextManager[Keepalive]]
"""Opens the connections, in the event loop of the thread that will use them."""

WAITING_METHODS = frozenset({"executions.wait_for_end"})
"""Methods that return when something has happened, however long that takes. An owner that exits does not wait for them:
the caller calls the next owner."""

IDEMPOTENT_METHODS = {
    "executions.start_definition": "execution",
    "executions.start": "execution",
    "executions.signal": "key",
    "executions.retry": "key",
    "executions.rerun": "key",
    "bulk.create": "key",
}
"""The argument by which the owner recognises a repeated call; the client generates a value if there is none."""


class FileInUseError(StoreUnavailableError):
    """Another process owns the database file."""


class NoOwnerError(StoreUnavailableError):
    """No process listens on the owner's socket: there is no owner, or it is starting or shutting down."""


class OwnerLostError(StoreUnavailableError):
    """The connection to the owner broke before it replied. The call may have been carried out."""


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
    """The nodes of an execution that run now. Not `complete`: a worker did not answer in time. `queues`: those that
    workers receive from; None if that is unknown, or if this process receives all."""

    nodes: list[RunningNode]
    complete: bool = True
    queues: frozenset[str] | None = None


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
