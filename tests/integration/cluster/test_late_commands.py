"""Commands that reach Redis late, and answers that reach a worker late, run nothing that has ended meanwhile."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rune.adapters.redis.client import Connection
from rune.adapters.redis.encoding import KeySpace
from rune.testing.harness import Harness
from tests.chaos.cuttable_proxy import CuttableProxy, running_proxy
from tests.support.async_test import async_test
from tests.support.backends import ClusterBackend, backends, redis_command
from tests.support.services.redis_server import redis_server
from tests.support.waiting import until
from tests.support.workflows import of_type, recording_registry, workflow

pytestmark = pytest.mark.long

DOCUMENT = workflow("start>a", a=of_type("t.call"))
CHAIN = workflow("start>a a>b", a=of_type("t.call"), b=of_type("t.call"))
PATIENCE_S = 0.5
"""How long the starting process of these tests waits for Redis, instead of 10 s."""


class Late:
    """Two engines over the same stores; one of them reaches Redis through a proxy that can hold what it passes on."""

    def __init__(self, backend: ClusterBackend, late: Harness, other: Harness, proxy: CuttableProxy) -> None:
        self.late = late
        self.other = other
        self.proxy = proxy
        self._prefix = backend.settings.prefix

    async def forget_marks(self, execution: str) -> None:
        """Let the marks of an execution expire."""
        await redis_command("DEL", KeySpace(self._prefix).activated(execution))

    async def stored_keys(self, execution: str) -> list[bytes]:
        """Return the keys of an execution besides its mark."""
        keys: list[bytes] = await redis_command("KEYS", f"{self._prefix}:*{execution}*")
        return [each for each in keys if not each.endswith(b":activated")]


@asynccontextmanager
async def engines(
    backend: ClusterBackend, calls: list[str], late: frozenset[str], other: frozenset[str]
) -> AsyncIterator[Late]:
    """Open the two engines with these roles."""
    registry = recording_registry(calls)
    with running_proxy(redis_server().socket) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}"
        streams = backend.settings.queue == backend.settings.state
        async with (
            backend.open(registry=registry, roles=other) as two,
            backend.open(
                registry=registry,
                roles=late,
                slots=1,  # a token that is sent again goes to another worker
                state=url,
                queue=url if streams else backend.settings.queue,
            ) as one,
        ):
            yield Late(backend, one, two, proxy)


async def start_held(both: Late, monkeypatch: pytest.MonkeyPatch) -> str:
    """Start an execution in the late engine while its commands are held; return its id."""
    admission: Any = both.late.engine.backend.admission
    monkeypatch.setattr(admission._client, "_patience", PATIENCE_S)
    both.proxy.hold(commands=True)
    run = await both.late.start(DOCUMENT)
    await until(lambda: both.proxy.holds(commands=True), "the activation was sent")
    return run.id


async def until_activated(both: Late) -> None:
    """Pass on what is held and wait for the answers."""
    both.proxy.release()
    await until(lambda: not both.late.engine.launcher._activations, "the late activation was answered")


@backends("redis", "rabbitmq")
@async_test
async def test_activation_that_arrives_after_the_end_installs_nothing(
    backend: ClusterBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    async with engines(backend, calls, frozenset(), frozenset({"worker"})) as both:
        execution = await start_held(both, monkeypatch)
        sent_at = time.monotonic()
        accepted = await both.other.engine.backend.journal.accepted(execution)
        assert accepted is not None
        await both.other.engine.launcher.activate(accepted)
        assert (await (await both.other.engine.wait_for(execution))).status == "completed"
        await both.forget_marks(execution)
        await until(lambda: time.monotonic() > sent_at + PATIENCE_S, "the caller has given up")
        await until_activated(both)
        assert await both.stored_keys(execution) == []
        await until(lambda: both.other.engine.busy == 0, "the worker is idle")
    assert calls == ["a@/"]


@backends("redis", "rabbitmq")
@async_test
async def test_activation_that_arrives_after_a_cancellation_installs_nothing(
    backend: ClusterBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The execution was never active, so that nothing but its end can tell."""
    calls: list[str] = []
    async with engines(backend, calls, frozenset(), frozenset({"worker"})) as both:
        execution = await start_held(both, monkeypatch)
        monkeypatch.undo()
        await both.other.engine.services.executions.cancel(execution)
        await until_activated(both)
        assert await both.stored_keys(execution) == []
    assert calls == []


@backends("redis", "rabbitmq")
@async_test
async def test_claim_that_is_answered_after_its_lease_runs_nothing(
    backend: ClusterBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    async with engines(backend, calls, frozenset({"worker"}), frozenset({"scheduler"})) as both:
        state: Any = both.late.engine.backend.state
        claim = state.claim
        asked: list[float] = []

        async def claim_slowly(*arguments: Any, **options: Any) -> Any:
            if not asked:
                asked.append(time.monotonic())
                # Its connections stay open, unlike those of a process that has given up.
                monkeypatch.setattr(Connection, "_check_replies", lambda *_: None)
                both.proxy.hold(commands=False)
            return await claim(*arguments, **options)

        monkeypatch.setattr(state, "claim", claim_slowly)
        run = await both.other.start(CHAIN)
        async with backend.open(registry=recording_registry(calls), roles=frozenset({"worker"})):
            await until(lambda: bool(asked), "the late worker claims the token")
            assert (await (await both.other.engine.wait_for(run.id))).status == "completed"
        ended = list(calls)
        both.proxy.release()
        await until(lambda: both.late.engine.busy == 0, "the late worker is idle")
    assert calls == ended == ["a@/", "b@/"]
