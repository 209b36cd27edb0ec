"""Errors of the engine itself, with three workers: the tries and their delays are exact."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest

from rune.core.execution.token import Token
from rune.runtime.worker import worker
from rune.runtime.worker.node_runner import NodeRunner
from tests.support.backends import Backend, backends
from tests.support.workflows import of_type, recording_registry, workflow

TIMEOUT_S = 60.0
MAX_LATENESS_S = 3.0
"""By how much a retry may be late on a busy machine."""


@backends("redis-travelling", "rabbitmq-travelling")
def test_engine_error_in_three_workers_is_retried_exactly(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays = (0.4, 0.8, 1.6)
    tries: list[float] = []

    async def broken(*given: Any) -> Any:
        tries.append(time.monotonic())
        raise LookupError("the engine itself")

    monkeypatch.setattr(worker, "REDELIVERY_DELAYS_S", delays)
    monkeypatch.setattr(NodeRunner, "run", broken)

    async def go() -> Any:
        async with backend.open(count=3, registry=recording_registry([])) as engine:
            run = await engine.start(workflow("start>a", a=of_type("t.call")))
            # Copies of the message, as after a lost connection, add no tries.
            for _ in range(3):
                await engine.wait_for(lambda: bool(tries), TIMEOUT_S)
                await engine.engine.backend.queue.send(run.id, [Token(1), Token(1)])
            return await run.end()

    end = asyncio.run(go())
    assert (end.status, end.error.code) == ("failed", "DEAD_LETTERED")
    assert "LookupError" in end.error.message
    gaps = [after - before for before, after in pairwise(tries)]
    assert len(gaps) == len(delays)
    for gap, delay in zip(gaps, delays, strict=True):
        assert delay <= gap <= delay + MAX_LATENESS_S
