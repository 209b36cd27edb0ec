"""A harness: a real engine in a folder of its own, driven from a test.

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
from rune.testing.clock import VirtualClock

DEADLINE = 30.0


def compiled(document: Any, registry: Registry | None = None) -> Plan:
    """The plan of a document; InvalidDocument with all problems if it is refused."""
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

    async def end(self, deadline: float = DEADLINE) -> ExecutionEnded:
        """How it ended. With a virtual clock time is moved on whenever nothing else can happen."""
        return await self._harness.until(self.ending, deadline)

    async def history(self) -> History:
        """Its past as far as it has come."""
        backend = self._harness.engine.backend
        return await read_history(backend.journal, backend.blob, self.accepted, self.plan)

    async def document(self) -> dict[str, Any]:
        """What `rune run --json` prints."""
        return await (await self.history()).document()

    async def facts(self) -> list[StoredFact]:
        """What the journal knows."""
        return await self._harness.engine.backend.journal.facts(self.id)


class Harness:
    """A running engine and what a test does with it."""

    def __init__(self, engine: Engine, clock: Clock | None) -> None:
        self.engine = engine
        self.clock = clock

    async def start(self, document: Any, payload: Any = None, **options: Any) -> Run:
        """Start a document, or a plan."""
        plan = document if isinstance(document, Plan) else compiled(document, self.engine.registry)
        data = msgspec.json.encode({} if payload is None else payload)
        accepted, ending = await self.engine.start(plan, data, **options)
        return Run(self, accepted, plan, ending)

    async def run(self, document: Any, payload: Any = None, **options: Any) -> dict[str, Any]:
        """Run a document to its end."""
        run = await self.start(document, payload, **options)
        await run.end()
        return await run.document()

    async def settle(self, deadline: float = DEADLINE) -> None:
        """Until nothing can happen before time passes; for a virtual clock."""
        clock = self.clock
        assert isinstance(clock, VirtualClock), "only a virtual clock stands still"
        await self.wait_for(lambda: self.engine.busy == 0 and not self._queued() and clock.asleep, deadline)

    def _queued(self) -> bool:
        length = getattr(self.engine.backend.queue, "__len__", None)
        return bool(length()) if length is not None else False

    async def wait_for(self, fact: Callable[[], bool], deadline: float = DEADLINE) -> None:
        """Until something holds, twice in a row with everything that was ready run in between."""
        async with asyncio.timeout(deadline):
            held = 0
            while held < 2:
                held = held + 1 if fact() else 0
                await asyncio.sleep(0 if held else 0.001)

    async def until(
        self, ending: asyncio.Future[ExecutionEnded], deadline: float = DEADLINE
    ) -> ExecutionEnded:
        """The end of an execution."""
        async with asyncio.timeout(deadline):
            if isinstance(self.clock, VirtualClock):
                while not ending.done():
                    await self.settle(deadline)
                    if not ending.done():
                        await self.skip(self.clock)
            return await ending

    async def skip(self, clock: VirtualClock) -> None:
        """Move time to the next timer, or, where none is armed, to the next look of the sweeper."""
        due = await self.engine.backend.state.next_due()
        if due is not None and due > clock.now():
            clock.advance(due - clock.now())
        elif not clock.advance_to_next():
            raise AssertionError("nothing will ever happen: the execution is stuck")


@asynccontextmanager
async def harness(
    folder: Path,
    *,
    clock: Clock | None = None,
    registry: Registry | None = None,
    in_place: bool = True,
    **settings: Any,
) -> AsyncIterator[Harness]:
    """An engine over the embedded backend in a folder. Opened again there, it goes on where the last one was."""
    asked: dict[str, Any] = {"home": str(folder), "durability": "relaxed", "in_place": in_place, **settings}
    async with running_engine(Settings(**asked), clock=clock, registry=registry) as engine:
        yield Harness(engine, clock)


def run_document(
    document: Any, payload: Any = None, *, fake_time: bool = True, **options: Any
) -> dict[str, Any]:
    """Run a document to its end in a temporary folder; waits take no time. Answers what `rune run --json` prints."""

    async def go(folder: str) -> dict[str, Any]:
        async with harness(Path(folder), **options) as engine:
            return await engine.run(document, payload, fake_time=fake_time)

    with tempfile.TemporaryDirectory(prefix="rune-") as folder:
        return asyncio.run(go(folder))
