"""A process that was paused after it accepted an execution does not activate it again if another process has."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.adapters.redis.encoding import KeySpace
from rune.runtime.lifecycle import launcher
from rune.testing.harness import Harness
from tests.support.backends import ClusterBackend, backends, redis_command
from tests.support.waiting import until
from tests.support.workflows import of_type, recording_registry, workflow

DOCUMENT = workflow("start>a", a=of_type("t.call"))


class PausedAccept:
    """Pauses the process that accepts the next execution after its row is committed."""

    def __init__(self, starter: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.committed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.resumed = asyncio.Event()
        journal = starter.engine.backend.journal
        original = journal.accept

        async def accept(*arguments: Any, **named: Any) -> Any:
            accepted = await original(*arguments, **named)
            self.committed.set_result(accepted.id)
            await self.resumed.wait()
            return accepted

        monkeypatch.setattr(journal, "accept", accept)


async def _start_late(backend: ClusterBackend, monkeypatch: pytest.MonkeyPatch, *, marked: bool) -> list[str]:
    """Start an execution that another process activates and ends before the first goes on; return what was called."""
    calls: list[str] = []
    registry = recording_registry(calls)
    async with (
        backend.open(registry=registry, roles=frozenset({"worker"})) as other,
        backend.open(registry=registry, roles=frozenset()) as starter,
    ):
        paused = PausedAccept(starter, monkeypatch)
        starting = asyncio.create_task(starter.start(DOCUMENT))
        execution = await paused.committed
        accepted = await other.engine.backend.journal.accepted(execution)
        assert accepted is not None
        await other.engine.launcher.activate(accepted)
        await (await other.engine.wait_for(execution))
        if not marked:
            await redis_command("DEL", KeySpace(backend.settings.prefix).activated(execution))
        paused.resumed.set()
        await (await starting).end()
        await starter.engine.launcher.close()
        await until(lambda: other.engine.busy == 0, "the worker is idle")
        keys = await redis_command("KEYS", f"{backend.settings.prefix}:*{execution}*")
        assert [key for key in keys if not key.endswith(b":activated")] == []
    return calls


@backends("redis", "rabbitmq")
def test_late_activation_runs_nothing_again(backend: ClusterBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asyncio.run(_start_late(backend, monkeypatch, marked=True)) == ["a@/"]


@backends("redis", "rabbitmq")
def test_activation_after_long_pause_reads_journal(
    backend: ClusterBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "MAX_ADMISSION_S", 0.0)  # the pause exceeds the life of the mark
    assert asyncio.run(_start_late(backend, monkeypatch, marked=False)) == ["a@/"]
