"""Somebody slow wants to start a child for a token that others have seen to its end: no child runs on."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from rune.bootstrap import running_engine
from rune.core.definition.model import canonical
from rune.core.execution.fact import Fact, NodeResult, NodeSuspended
from rune.core.execution.outcome import Error, Failure
from rune.core.execution.step import step
from rune.core.execution.token import Token
from rune.errors import NodeFailure
from rune.ids import child_id
from rune.ports.access import AppliedLimits
from rune.ports.journal import ExecutionRecord
from rune.settings import Settings
from rune.testing.harness import Harness, Run, compiled
from tests.hazards.building import Fields, counting, entry, kind, workflow
from tests.hazards.clustered import fresh, until

PATIENCE = 120.0
KID = {
    **workflow("start>hold hold>effect", hold=kind("wait", resume="signal"), effect=kind("t.call")),
    "id": "kid",
}
Act = Callable[[], Awaitable[Any]]


# Goes on behind a failed call and then waits, so that it is not its own end that cancels the child.
PARENT = workflow(
    "start>call call>ask",
    call={**kind("workflow", workflow="kid"), "error": "ignore"},
    ask=kind("wait", resume="signal"),
)


class Slow:
    """Starts of children wait until they may; whoever asked for one may be gone by then."""

    def __init__(self, engine: Any) -> None:
        self.asked, self.may = asyncio.Event(), asyncio.Event()
        self.starts: list[asyncio.Task[ExecutionRecord]] = []
        self.breaks = False  # whoever asked for a child fails at once, and the start is still on its way
        self.beside: Act | None = None  # done when the row of a failed token is about to be written
        self._journal = engine.backend.journal
        self._accept, self._record = self._journal.accept, self._journal.record
        self._journal.accept, self._journal.record = self.accept, self.record

    async def accept(
        self, wanted: ExecutionRecord, kept: Sequence[Fact] = (), held: AppliedLimits | None = None
    ) -> ExecutionRecord:
        if wanted.parent is None:
            found: ExecutionRecord = await self._accept(wanted, kept, held)
            return found
        self.starts.append(asyncio.ensure_future(self._later(wanted)))
        self.asked.set()
        if self.breaks:
            raise NodeFailure("nobody knows whether the child was started")
        return await self.starts[-1]

    async def _later(self, wanted: ExecutionRecord) -> ExecutionRecord:
        await self.may.wait()
        found: ExecutionRecord = await self._accept(wanted)
        return found

    async def record(self, execution: str, facts: Sequence[Fact]) -> Sequence[Fact]:
        head = facts[0]
        if self.beside is not None and isinstance(head, NodeResult) and head.status == "failed":
            await self.beside()
        found: Sequence[Fact] = await self._record(execution, facts)
        return found

    async def start_now(self) -> None:
        """Let the child begin, and wait until it has."""
        self.may.set()
        await self.starts[0]


@pytest.fixture(params=["embedded", "cluster"])
def settings(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Settings:
    """Where journal and state are one store, and where they are two."""
    return fresh() if request.param == "cluster" else Settings(home=str(tmp_path), durability="relaxed")


def _going(settings: Settings, calls: list[str], go: Callable[[Harness, Slow], Awaitable[None]]) -> None:
    async def run() -> None:
        roles = frozenset({"worker", "scheduler"})
        async with running_engine(settings, registry=counting(calls), roles=roles) as engine:
            await engine.services.workflows.deploy(canonical(compiled(KID, engine.registry).definition))
            async with asyncio.timeout(PATIENCE):
                await go(Harness(engine, None), Slow(engine))

    asyncio.run(run())


async def _waits(made: Harness, run: Run) -> None:
    """Until the parent is behind its call and nobody has anything in hands: a row is there before what follows."""

    async def there() -> bool:
        facts = [each.fact for each in await run.facts()]
        asks = any(isinstance(fact, NodeSuspended) and fact.node == run.plan.index["ask"] for fact in facts)
        return asks and made.engine.busy == 0

    await until(there, PATIENCE)


async def _ends(made: Harness, run: Run) -> Fields:
    await made.engine.services.executions.signal(run.id, "ask", b"1")
    await run.end(PATIENCE)
    return await run.document()


def test_no_child_is_accepted_behind_the_row_of_its_token(settings: Settings) -> None:
    calls: list[str] = []

    async def go(made: Harness, slow: Slow) -> None:
        backend = made.engine.backend
        run = await made.start(PARENT)
        await slow.asked.wait()
        failed = Failure(Error("TIMEOUT", "too long"))
        decision = step(run.plan, Token(run.plan.index["call"], ()), failed, backend.clock.now())
        assert decision.fact is not None
        await backend.journal.record(run.id, [decision.fact])
        applied = await backend.state.apply(run.id, [decision])
        await backend.queue.send(run.id, applied.emitted)
        slow.may.set()
        await _waits(made, run)
        assert await backend.journal.accepted(child_id(run.id, "call@/", 1)) is None
        told = await _ends(made, run)
        assert (told["status"], entry(told, "call")["error"]["code"]) == ("completed", "TIMEOUT")

    _going(settings, calls, go)
    assert calls == []


def test_a_child_that_was_just_accepted_ends_with_its_token(settings: Settings) -> None:
    calls: list[str] = []

    async def go(made: Harness, slow: Slow) -> None:
        slow.breaks, slow.beside = True, slow.start_now
        run = await made.start(PARENT)
        await _waits(made, run)
        child = child_id(run.id, "call@/", 1)
        end = await made.engine.backend.journal.end(child)
        assert end is not None, "the child runs on behind the end of its token"
        assert (end.status, end.error and end.error.code) == ("cancelled", "PARENT_ENDED")
        assert (await _ends(made, run))["status"] == "completed"

    _going(settings, calls, go)
    assert calls == []
