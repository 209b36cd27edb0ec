"""A token that crashes every worker fails its execution, also if unwritten claims are lost with the workers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.core.execution.token import Token
from rune.ports.state import Claim
from rune.runtime.worker.executor import MAX_CLAIMS, Executor, UnservableTokenError, stop_here
from tests.support.backends import UNSERVED_QUEUE, Backend, backends
from tests.support.workflows import of_type, recording_registry, workflow

MAX_CRASHES = 20
TIMEOUT_S = 120.0


@pytest.mark.parametrize(("known", "wanted"), [(True, MAX_CLAIMS + 1), (False, MAX_CLAIMS + 2)])
@backends("redis")
def test_token_that_crashes_every_worker_fails_execution(backend: Backend, known: bool, wanted: int) -> None:
    """It fails after six crashes, or seven if the first claim is lost. Each engine claims the token like a separate
    process and closes without writing the claim."""
    calls: list[str] = []
    document = workflow("start>a", a={**of_type("t.call"), "queue": UNSERVED_QUEUE})

    async def go() -> tuple[int, str, str]:
        async with backend.open(registry=recording_registry(calls)) as engine:
            run = await engine.start(document)
            token = Token(run.plan.index["a"], ())
            data = await engine.engine.data_cache.get(run.id)
            crashes = 0
            while not run.ending.done() and crashes < MAX_CRASHES:
                async with backend.open(registry=recording_registry(calls), roles=frozenset()) as crashing:
                    executor = crashing.engine._worker._executor
                    fence = (1, crashes)
                    claim = Claim("run", token, data.accepted.at, fence, again=known or crashes > 0)
                    try:
                        await executor._count_claim(data, claim, fence)
                    except UnservableTokenError:
                        break
                    crashes += 1
                    crashing.engine.backend.journal._fact_writer._claims.clear()  # type: ignore[attr-defined]
            end = await run.end(TIMEOUT_S)
            return crashes, end.status, end.error.code if end.error is not None else ""

    crashes, status, code = asyncio.run(go())
    assert (status, code) == ("failed", "WORKER_CRASH")
    assert crashes == wanted
    assert calls == []


@pytest.mark.parametrize(
    ("attempt", "claims", "alone"), [(1, 2, False), (1, 3, True), (4, 3, False), (4, 6, True)]
)
@backends("embedded", "redis")
def test_token_runs_alone_after_three_crashes_of_its_attempt(
    backend: Backend, attempt: int, claims: int, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt has a claim of its own: those of earlier attempts are no crashes."""
    document = workflow("start>a", a={**of_type("t.call"), "queue": UNSERVED_QUEUE})
    seen: list[bool] = []

    async def look(self: Executor, *arguments: Any) -> None:
        seen.append(not self._isolation.is_open)

    async def go() -> None:
        async with backend.open(registry=recording_registry([])) as engine:
            run = await engine.start(document)
            executor, journal = engine.engine._worker._executor, engine.engine.backend.journal
            token = Token(run.plan.index["a"], (), attempt=attempt)
            data = await engine.engine.data_cache.get(run.id)
            for number in range(claims):
                await journal.count_claim(run.id, token.node, (), (1, number), data.accepted.at, durable=True)
            claim = Claim("run", token, data.accepted.at, (1, claims), again=True)
            monkeypatch.setattr(Executor, "_run_and_commit", look)
            await executor._run_claimed(
                data, claim, engine.engine.data_cache.clock_since(claim.now), stop_here
            )
            assert executor._isolation.is_open

    asyncio.run(go())
    assert seen == [alone]
