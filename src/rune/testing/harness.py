"""A test harness: an engine over the embedded backend in a folder, driven from a test.

async with harness(folder, clock=VirtualClock()) as engine:
    run = await engine.start(document, {"n": 1})
    await engine.settle()
    document = await run.document()
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from rune.bootstrap import running_engine
from rune.bootstrap.sqlite import create_database
from rune.build.results import NodeRun, Result
from rune.core.definition.parser import parse_data
from rune.core.definition.strict_json import Decoded
from rune.core.execution.fact import ExecutionEnded
from rune.core.plan.compiler import compile_definition
from rune.core.plan.model import Plan
from rune.documents.loader import check_document
from rune.errors import InvalidDocumentError
from rune.nodes.registry import Registry, standard_registry
from rune.ports.clock import Clock
from rune.ports.journal import ExecutionRecord, StoredFact
from rune.runtime.engine import Engine
from rune.runtime.queries.history import History, read_history
from rune.settings import Settings

START = 1_700_000_000_000


class VirtualClock:
    """A clock whose time changes only when the test advances it."""

    def __init__(self, start: int = START) -> None:
        self._now = start
        self._woken = False
        self._sleepers: dict[asyncio.Future[None], int | None] = {}

    def now(self) -> int:
        return self._now

    @property
    def asleep(self) -> bool:
        """Return whether a task is sleeping and has not been woken."""
        return bool(self._sleepers) and not self._woken

    @property
    def next(self) -> int | None:
        """Return the earliest wake-up time of the sleeping tasks."""
        return min((when for when in self._sleepers.values() if when is not None), default=None)

    async def sleep_until(self, when: int | None) -> None:
        if self._woken or (when is not None and when <= self._now):
            self._woken = False
            await asyncio.sleep(0)
            return
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers[sleeper] = when
        try:
            await sleeper
        finally:
            self._sleepers.pop(sleeper, None)
            self._woken = False

    def wake(self) -> None:
        """End the current sleep, or the next one if no task is sleeping."""
        self._woken = True
        for sleeper in self._sleepers:
            _end(sleeper)

    def advance(self, ms: int) -> None:
        """Advance the time."""
        if ms < 0:
            raise ValueError("time cannot go backwards")
        self._now += ms
        for sleeper, when in self._sleepers.items():
            if when is not None and when <= self._now:
                _end(sleeper)

    def advance_to_next(self) -> bool:
        """Advance the time to the next wake-up; return False if no task waits for a time."""
        when = self.next
        if when is None:
            return False
        self.advance(max(0, when - self._now))
        return True


def _end(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


TIMEOUT_S = 30.0


def compiled(document: Any, registry: Registry | None = None) -> Plan:
    """Compile a document; raise InvalidDocumentError with all problems if it is not valid."""
    registry = registry or standard_registry()
    verdict = check_document(parse_data(Decoded(document)), registry.catalogue)
    if not verdict.valid or verdict.definition is None:
        raise InvalidDocumentError(verdict.problems)
    return compile_definition(verdict.definition, registry.catalogue)


class Run:
    """One execution under the harness."""

    def __init__(
        self, harness: Harness, accepted: ExecutionRecord, plan: Plan, ending: asyncio.Future[ExecutionEnded]
    ) -> None:
        self._harness = harness
        self.accepted = accepted
        self.plan = plan
        self.ending = ending

    @property
    def id(self) -> str:
        return self.accepted.id

    async def end(self, deadline: float = TIMEOUT_S) -> ExecutionEnded:
        """Wait for the end of the execution. A virtual clock is advanced whenever the engine is idle."""
        return await self._harness.until(self.ending, deadline)

    async def history(self) -> History:
        """Return the history so far."""
        backend = self._harness.engine.backend
        return await read_history(backend.journal, backend.blob, self.accepted, self.plan)

    async def document(self) -> dict[str, Any]:
        """Return the document that `rune run --json` prints."""
        return await (await self.history()).document(whole=True)

    async def timeline(self) -> list[NodeRun]:
        """Return the node runs that began, in the order they began."""
        return Result(await self.document()).timeline

    async def facts(self) -> list[StoredFact]:
        """Return the recorded facts."""
        return await self._harness.engine.backend.journal.facts(self.id)


class Harness:
    """A running engine with helpers for tests."""

    def __init__(self, engine: Engine, clock: Clock | None) -> None:
        self.engine = engine
        self.clock = clock

    async def start(self, document: Any, payload: Any = None, **options: Any) -> Run:
        """Start a document or a compiled plan."""
        plan = document if isinstance(document, Plan) else compiled(document, self.engine.registry)
        data = msgspec.json.encode({} if payload is None else payload)
        accepted, ending = await self.engine.start(plan, data, **options)
        return Run(self, accepted, plan, ending)

    async def run(self, document: Any, payload: Any = None, **options: Any) -> dict[str, Any]:
        """Run a document to its end."""
        run = await self.start(document, payload, **options)
        await run.end()
        return await run.document()

    async def settle(self, deadline: float = TIMEOUT_S) -> None:
        """Wait until the engine is idle and only time can make it continue. Requires a virtual clock."""
        clock = self.clock
        assert isinstance(clock, VirtualClock), "settle requires a virtual clock"
        await self.wait_for(lambda: self.engine.busy == 0 and not self.queued and clock.asleep, deadline)

    @property
    def queued(self) -> bool:
        """Whether tokens wait in the queue."""
        length = getattr(self.engine.backend.queue, "__len__", None)
        return bool(length()) if length is not None else False

    async def wait_for(self, condition: Callable[[], bool], deadline: float = TIMEOUT_S) -> None:
        """Wait until a condition holds twice in a row, with all ready tasks run in between."""
        async with asyncio.timeout(deadline):
            held = 0
            while held < 2:
                held = held + 1 if condition() else 0
                await asyncio.sleep(0 if held else 0.001)

    async def until(
        self, ending: asyncio.Future[ExecutionEnded], deadline: float = TIMEOUT_S
    ) -> ExecutionEnded:
        """Wait for the end of an execution."""
        async with asyncio.timeout(deadline):
            if isinstance(self.clock, VirtualClock):
                while not ending.done():
                    await self.settle(deadline)
                    if not ending.done():
                        await self.skip(self.clock)
            return await ending

    async def skip(self, clock: VirtualClock) -> None:
        """Advance the clock to the next timer or, if none is armed, to the next wake-up of the engine."""
        due = await self.engine.backend.state.next_due()
        if due is not None and due > clock.now():
            clock.advance(due - clock.now())
        elif not clock.advance_to_next():
            raise AssertionError("the execution is stuck: no timer is armed and no task sleeps")


@asynccontextmanager
async def harness(
    folder: Path,
    *,
    clock: Clock | None = None,
    registry: Registry | None = None,
    in_place: bool = True,
    **settings: Any,
) -> AsyncIterator[Harness]:
    """Run an engine over the embedded backend in a folder; reopened there, it resumes where it left off."""
    values: dict[str, Any] = {"home": str(folder), "durability": "relaxed", "in_place": in_place, **settings}
    chosen = Settings(**values)
    create_database(chosen)
    async with running_engine(chosen, clock=clock, registry=registry) as engine:
        yield Harness(engine, clock)


def run_document(
    document: Any, payload: Any = None, *, fake_time: bool = True, **options: Any
) -> dict[str, Any]:
    """Run a document in a temporary folder and return what `rune run --json` prints; waits take no time."""

    async def go(folder: str) -> dict[str, Any]:
        async with harness(Path(folder), **options) as engine:
            return await engine.run(document, payload, fake_time=fake_time)

    with tempfile.TemporaryDirectory(prefix="rune-") as folder:
        return asyncio.run(go(folder))
