"""A slow start of a child workflow for a token that has ended meanwhile leaves no running child."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rune.bootstrap import running_engine
from rune.core.definition.model import canonical
from rune.core.execution.fact import Fact, NodeResult, NodeSuspended
from rune.core.execution.outcome import Error, Failure
from rune.core.execution.step import step
from rune.core.execution.token import Token, child_id
from rune.errors import NodeFailure
from rune.ports.access import AppliedLimits
from rune.ports.journal import ExecutionRecord
from rune.testing.harness import Harness, Run, compiled
from tests.support.backends import Backend, backends
from tests.support.waiting import until
from tests.support.workflows import Fields, node_entry, of_type, recording_registry, workflow

TIMEOUT_S = 120.0
KID = {
    **workflow("start>hold hold>effect", hold=of_type("wait", resume="signal"), effect=of_type("t.call")),
    "id": "kid",
}
Action = Callable[[], Awaitable[Any]]


# Continues after a failed call and then waits, so that the child is not cancelled by the end of the parent.
PARENT = workflow(
    "start>call call>ask",
    call={**of_type("workflow", workflow="kid"), "error": "ignore"},
    ask=of_type("wait", resume="signal"),
)


class DelayedStarts:
    """Holds the starts of children until they are released; the caller may have ended by then."""

    def __init__(self, engine: Any) -> None:
        self.requested, self.released = asyncio.Event(), asyncio.Event()
        self.starts: list[asyncio.Task[ExecutionRecord]] = []
        self.fails = False  # the caller fails at once while the start is still held
        self.before_failure: Action | None = None  # awaited before the row of a failed token is written
        self._journal = engine.backend.journal
        self._accept, self._record = self._journal.accept, self._journal.record
        self._journal.accept, self._journal.record = self.accept, self.record

    async def accept(
        self,
        wanted: ExecutionRecord,
        kept: Sequence[Fact] = (),
        held: AppliedLimits | None = None,
        digest: bytes | None = None,
    ) -> ExecutionRecord:
        if wanted.parent is None:
            found: ExecutionRecord = await self._accept(wanted, kept, held, digest)
            return found
        self.starts.append(asyncio.ensure_future(self._later(wanted)))
        self.requested.set()
        if self.fails:
            raise NodeFailure("it is unknown whether the child was started")
        return await self.starts[-1]

    async def _later(self, wanted: ExecutionRecord) -> ExecutionRecord:
        await self.released.wait()
        found: ExecutionRecord = await self._accept(wanted)
        return found

    async def record(self, execution: str, facts: Sequence[Fact], *, hooked: bool = False) -> Sequence[Fact]:
        head = facts[0]
        if self.before_failure is not None and isinstance(head, NodeResult) and head.status == "failed":
            await self.before_failure()
        found: Sequence[Fact] = await self._record(execution, facts, hooked=hooked)
        return found

    async def start_now(self) -> None:
        """Release the start of the child and wait for it."""
        self.released.set()
        await self.starts[0]


def _run(backend: Backend, calls: list[str], go: Callable[[Harness, DelayedStarts], Awaitable[None]]) -> None:
    async def run() -> None:
        roles = frozenset({"worker", "scheduler"})
        async with running_engine(
            backend.settings, registry=recording_registry(calls), roles=roles
        ) as engine:
            await engine.services.workflows.deploy(canonical(compiled(KID, engine.registry).definition))
            async with asyncio.timeout(TIMEOUT_S):
                await go(Harness(engine, None), DelayedStarts(engine))

    asyncio.run(run())


async def _until_asking(harness: Harness, run: Run) -> None:
    """Wait until the parent is past its call and no token is being handled: a row is written before its effects."""

    async def asking() -> bool:
        facts = [each.fact for each in await run.facts()]
        suspended = any(
            isinstance(fact, NodeSuspended) and fact.node == run.plan.index["ask"] for fact in facts
        )
        return suspended and harness.engine.busy == 0

    await until(asking, "the parent waits for its signal", TIMEOUT_S)


async def _finish(harness: Harness, run: Run) -> Fields:
    await harness.engine.services.executions.signal(run.id, "ask", b"1")
    await run.end(TIMEOUT_S)
    return await run.document()


@backends("embedded", "redis")
def test_child_is_not_accepted_after_row_of_its_token(backend: Backend) -> None:
    calls: list[str] = []

    async def go(harness: Harness, slow: DelayedStarts) -> None:
        backend = harness.engine.backend
        run = await harness.start(PARENT)
        await slow.requested.wait()
        failed = Failure(Error("TIMEOUT", "too long"))
        decision = step(run.plan, Token(run.plan.index["call"], ()), failed, backend.clock.now())
        assert decision.fact is not None
        await backend.journal.record(run.id, [decision.fact])
        applied = await backend.state.apply(run.id, [decision])
        await backend.queue.send(run.id, applied.emitted)
        slow.released.set()
        await _until_asking(harness, run)
        assert await backend.journal.accepted(child_id(run.id, "call@/", 1)) is None
        result = await _finish(harness, run)
        assert (result["status"], node_entry(result, "call")["error"]["code"]) == ("completed", "TIMEOUT")

    _run(backend, calls, go)
    assert calls == []


@backends("embedded", "redis")
def test_just_accepted_child_is_cancelled_with_its_token(backend: Backend) -> None:
    calls: list[str] = []

    async def go(harness: Harness, slow: DelayedStarts) -> None:
        slow.fails, slow.before_failure = True, slow.start_now
        run = await harness.start(PARENT)
        await _until_asking(harness, run)
        child = child_id(run.id, "call@/", 1)
        end = await harness.engine.backend.journal.end(child)
        assert end is not None, "the child is still running after the end of its token"
        assert (end.status, end.error and end.error.code) == ("cancelled", "PARENT_ENDED")
        assert (await _finish(harness, run))["status"] == "completed"

    _run(backend, calls, go)
    assert calls == []
