"""MissingTypeTracker: how long an execution waits for a worker that has a node type."""

from __future__ import annotations

import asyncio

import pytest

from rune.ports.processes import ProcessInfo
from rune.runtime.worker.worker import MISSING_TYPE_TIMEOUT_S, MissingTypeTracker


class FakeRegistry:
    """A process registry with one process."""

    def __init__(self) -> None:
        self.types: tuple[str, ...] = ()
        self.roles: tuple[str, ...] = ("worker",)

    async def heartbeat(self, member: ProcessInfo) -> bool:
        return False

    async def request_drain(self, name: str, draining: bool) -> None: ...

    async def leave(self, name: str) -> None: ...

    async def list(self) -> list[ProcessInfo]:
        process = ProcessInfo(
            name="w", host="h", pid=1, roles=self.roles, version="1", started_at=0, types=self.types
        )
        return [process]


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("rune.runtime.worker.worker.time.monotonic", lambda: now[0])
    return now


def expired(tracker: MissingTypeTracker, execution: str = "x") -> bool:
    return asyncio.run(tracker.expired(execution, "acme.scan"))


def test_type_without_worker_expires_after_timeout(time: list[float]) -> None:
    tracker = MissingTypeTracker(FakeRegistry())
    assert not expired(tracker)
    time[0] = MISSING_TYPE_TIMEOUT_S - 1
    assert not expired(tracker)
    assert not expired(tracker, "y")
    time[0] = MISSING_TYPE_TIMEOUT_S
    assert expired(tracker)


def test_worker_with_type_restarts_timeout(time: list[float]) -> None:
    registry = FakeRegistry()
    tracker = MissingTypeTracker(registry)
    assert not expired(tracker)
    time[0] = MISSING_TYPE_TIMEOUT_S + 1
    registry.types = ("acme.scan",)
    assert not expired(tracker)
    registry.types = ()
    assert not expired(tracker)
    time[0] += MISSING_TYPE_TIMEOUT_S
    assert expired(tracker)


def test_scheduler_with_type_does_not_restart_timeout(time: list[float]) -> None:
    registry = FakeRegistry()
    registry.types, registry.roles = ("acme.scan",), ("scheduler",)
    tracker = MissingTypeTracker(registry)
    assert not expired(tracker)
    time[0] = MISSING_TYPE_TIMEOUT_S
    assert expired(tracker)


def test_type_never_expires_without_process_registry(time: list[float]) -> None:
    tracker = MissingTypeTracker(None)
    assert not expired(tracker)
    time[0] = 10 * MISSING_TYPE_TIMEOUT_S
    assert not expired(tracker)
