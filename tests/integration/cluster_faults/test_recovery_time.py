"""How long a token waits whose worker or scheduler has died."""

from __future__ import annotations

import asyncio
import pathlib
import time
from collections.abc import Iterator

import pytest

from rune.nodes.custom import kind_of, node
from rune.nodes.registry import standard_registry
from rune.runtime.worker.leases import Leases
from rune.testing.harness import Harness
from tests.support.backends import Backend, backends
from tests.support.clusters import Cluster, open_cluster
from tests.support.services.fleet import Role
from tests.support.workflows import of_type, wait, workflow

pytestmark = pytest.mark.long

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
    monkeypatch.setattr(Leases, "held", lambda *_: [])

    async def go() -> str:
        async with backend.open(count=2, registry=standard_registry().extended([found])) as engine:
            return (await (await engine.start(workflow("start>a", a=of_type("t.dies")))).end()).status

    assert asyncio.run(go()) == "completed"
    assert len(began) == 2
    assert began[1] - began[0] <= RECOVERY_S + MARGIN_S


@pytest.fixture(params=["redis", "rabbitmq"])
def stores_only(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Cluster]:
    """A cluster without processes."""
    with open_cluster(tmp_path, request.param, workers=0, schedulers=0, in_place=False) as made:
        yield made


@pytest.mark.parametrize(("role", "point"), [("worker", "applied:2"), ("scheduler", "fired")])
def test_unsent_token_moves_again_in_time(stores_only: Cluster, role: Role, point: str) -> None:
    """A process dies after it has changed the state and before it has sent what follows. The time counts from the
    moment when its successor is ready: how long a process takes to start depends on the machine."""
    stores_only.fleet.start("scheduler" if role == "worker" else "worker").wait_ready()
    crashing = stores_only.fleet.start(role, RUNE_FAILPOINT=point)
    crashing.wait_ready()
    document = workflow(
        "start>a a>w w>b b>c", a=_effect("a"), w=wait(0.2, "seconds"), b=_effect("b"), c=_effect("c")
    )

    async def go() -> float:
        async with stores_only.connect() as (engine, _):
            run = await Harness(engine, None).start(document)
            await asyncio.to_thread(crashing.process.wait)
            # On Redis the function that fires a timer sends its token, so there the execution may have ended.
            assert role == "scheduler" or not run.ending.done()
            successor = await asyncio.to_thread(stores_only.fleet.start, role)
            await asyncio.to_thread(successor.wait_ready)
            ready = time.monotonic()
            assert (await run.end()).status == "completed"
            return time.monotonic() - ready

    assert asyncio.run(go()) <= RECOVERY_S + MARGIN_S
    assert set(stores_only.effects().values()) == {1}


def _effect(did: str) -> dict[str, object]:
    return of_type("ledger.effect", did=did)
