"""The engine reports the failure of a background task."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rune.bootstrap import running_engine
from rune.runtime.maintenance.scheduler import Scheduler
from rune.settings import Settings


def test_failed_background_task_resolves_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: Scheduler) -> None:
        raise MemoryError("none left")

    monkeypatch.setattr(Scheduler, "run", fail)

    async def run() -> BaseException:
        async with running_engine(Settings(home=str(tmp_path))) as engine:
            return await asyncio.wait_for(engine.broken, 60)

    assert isinstance(asyncio.run(run()), MemoryError)


def test_regular_stop_does_not_resolve_broken(tmp_path: Path) -> None:
    async def run() -> bool:
        async with running_engine(Settings(home=str(tmp_path))) as engine:
            pass
        return engine.broken.done()

    assert not asyncio.run(run())
