"""A part of the engine that breaks off is noticed: a process that only seems to work is worse than none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rune.bootstrap import running_engine
from rune.runtime.maintenance.scheduler import Scheduler
from rune.settings import Settings


def test_a_service_that_breaks_off_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks_off(_: Scheduler) -> None:
        raise MemoryError("none left")

    monkeypatch.setattr(Scheduler, "run", breaks_off)

    async def run() -> BaseException:
        async with running_engine(Settings(home=str(tmp_path))) as engine:
            return await asyncio.wait_for(engine.broken, 60)

    assert isinstance(asyncio.run(run()), MemoryError)


def test_one_that_is_stopped_has_not_broken_off(tmp_path: Path) -> None:
    async def run() -> bool:
        async with running_engine(Settings(home=str(tmp_path))) as engine:
            pass
        return engine.broken.done()

    assert not asyncio.run(run())
