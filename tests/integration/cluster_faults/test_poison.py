"""A token that kills whoever runs it is put aside, also where the dead take along what they had not written down."""

from __future__ import annotations

import asyncio

from rune.core.execution.token import Token
from rune.ports.state import Claim
from rune.runtime.worker.executor import MAX_CLAIMS, UnservableTokenError
from tests.hazards.building import counting, kind, workflow
from tests.hazards.clustered import LATER, engines, fresh

DEATHS = 20
PATIENCE = 120.0


def test_a_token_that_kills_every_worker_ends_its_execution() -> None:
    """Each holder is a process of its own, as far as the stores can tell, and dies with the claim it has noted."""
    settings = fresh()
    calls: list[str] = []
    document = workflow("start>a", a={**kind("t.call"), "queue": LATER})

    async def go() -> tuple[int, str, str]:
        async with engines(settings, registry=counting(calls)) as cluster:
            run = await cluster.start(document)
            token = Token(run.plan.index["a"], ())
            book = await cluster.engine.data_cache.get(run.id)
            died = 0
            while not run.ending.done() and died < DEATHS:
                async with engines(settings, registry=counting(calls), roles=frozenset()) as doomed:
                    executor = doomed.engine._worker._executor
                    fence = (1, died)
                    claim = Claim("run", token, book.accepted.at, fence, again=died > 0)
                    try:
                        await executor._hold_lease(book, claim)
                    except UnservableTokenError:
                        break
                    died += 1
                    doomed.engine.backend.journal._fact_writer._claims.clear()  # type: ignore[attr-defined]
            end = await run.end(PATIENCE)
            return died, end.status, end.error.code if end.error is not None else ""

    died, status, code = asyncio.run(go())
    assert (status, code) == ("failed", "WORKER_CRASH")
    assert MAX_CLAIMS <= died <= MAX_CLAIMS + 2
    assert calls == []
