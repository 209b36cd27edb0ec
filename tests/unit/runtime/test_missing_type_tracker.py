"""A node type that nobody has: waited for as long as somebody may bring it, and no longer."""

from __future__ import annotations

import asyncio

import pytest

from rune.ports.processes import ProcessInfo
from rune.runtime.worker.worker import MISSING_TYPE_TIMEOUT_S, MissingTypeTracker


class Seen:
    """A fleet that is as it is told."""

    def __init__(self) -> None:
        self.types: tuple[str, ...] = ()
        self.roles: tuple[str, ...] = ("worker",)

    async def heartbeat(self, member: ProcessInfo) -> None: ...

    async def leave(self, name: str) -> None: ...

    async def list(self) -> list[ProcessInfo]:
        shown = ProcessInfo(
            name="w", host="h", pid=1, roles=self.roles, version="1", started_at=0, types=self.types
        )
        return [shown]


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("rune.runtime.worker.worker.time.monotonic", lambda: now[0])
    return now


def asked(lack: MissingTypeTracker, execution: str = "x") -> bool:
    return asyncio.run(lack.expired(execution, "acme.scan"))


def test_it_is_hopeless_once_nobody_has_had_it_for_a_minute(time: list[float]) -> None:
    lack = MissingTypeTracker(Seen())
    assert not asked(lack)
    time[0] = MISSING_TYPE_TIMEOUT_S - 1
    assert not asked(lack)
    assert not asked(lack, "another, met only now")
    time[0] = MISSING_TYPE_TIMEOUT_S
    assert asked(lack)


def test_a_worker_that_has_it_begins_the_wait_anew(time: list[float]) -> None:
    fleet = Seen()
    lack = MissingTypeTracker(fleet)
    assert not asked(lack)
    time[0] = MISSING_TYPE_TIMEOUT_S + 1
    fleet.types = ("acme.scan",)
    assert not asked(lack)
    fleet.types = ()
    assert not asked(lack)
    time[0] += MISSING_TYPE_TIMEOUT_S
    assert asked(lack)


def test_a_scheduler_that_has_it_runs_nothing(time: list[float]) -> None:
    fleet = Seen()
    fleet.types, fleet.roles = ("acme.scan",), ("scheduler",)
    lack = MissingTypeTracker(fleet)
    assert not asked(lack)
    time[0] = MISSING_TYPE_TIMEOUT_S
    assert asked(lack)


def test_without_a_fleet_nothing_is_hopeless(time: list[float]) -> None:
    lack = MissingTypeTracker(None)
    assert not asked(lack)
    time[0] = 10 * MISSING_TYPE_TIMEOUT_S
    assert not asked(lack)
