"""How long a token waits whose worker has died."""

from __future__ import annotations

import asyncio
import time

import pytest

from rune.nodes.custom import kind_of, node
from rune.nodes.registry import standard_registry
from rune.runtime.worker.leases import Leases
from tests.support.backends import Backend, backends
from tests.support.workflows import of_type, workflow

RECOVERY_S = 10.0
MARGIN_S = 1.5  # for a busy machine


@backends("redis-travelling", "rabbitmq-travelling")
def test_token_of_dead_worker_moves_again_in_time(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run never returns and its lease is not renewed, as if its worker had died after acknowledging."""
    began: list[float] = []

    @node("t.dies")
    async def dies() -> dict[str, int]:
        began.append(time.monotonic())
        if len(began) == 1:
            await asyncio.Event().wait()
        return {"tries": len(began)}

    found = kind_of(dies)
    assert found is not None
    monkeypatch.setattr(Leases, "hold", lambda *_: None)

    async def go() -> str:
        async with backend.open(count=2, registry=standard_registry().extended([found])) as engine:
            return (await (await engine.start(workflow("start>a", a=of_type("t.dies")))).end()).status

    assert asyncio.run(go()) == "completed"
    assert len(began) == 2
    assert began[1] - began[0] <= RECOVERY_S + MARGIN_S
