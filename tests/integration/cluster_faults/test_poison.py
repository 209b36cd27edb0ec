"""A token that crashes every worker fails its execution, also if unwritten claims are lost with the workers."""

from __future__ import annotations

import asyncio

import pytest

from rune.core.execution.token import Token
from rune.ports.state import Claim
from rune.runtime.worker.executor import MAX_CLAIMS, UnservableTokenError
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
