"""An embedded engine for tests: virtual time, mocks, and calls that need no event loop of the test.

engine = EmbeddedEngine(folder)
run = engine.start(flow, {"near": 1})
engine.settle()
engine.advance("5m")
assert run["merge"].error.code == "TIMEOUT"
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from rune.build.flow import Workflow
from rune.build.local import embedded_settings, input_bytes, plan_of, read_result
from rune.build.results import NodeError, NodeRun, Result
from rune.core.definition.model import canonical
from rune.core.plan.model import Plan
from rune.nodes.registry import full_registry
from rune.ports.journal import ExecutionRecord
from rune.runtime.lifecycle.launcher import StartOptions
from rune.testing.coverage import Coverage
from rune.testing.expectations import normal_document
from rune.testing.harness import Harness, VirtualClock, harness
from rune.testing.mocks import MockingRegistry, Mocks, milliseconds
from rune.testing.virtual_time import MockTimers, VirtualTime

T = TypeVar("T")

Document = Workflow | Mapping[str, Any] | Path | str
"""A workflow, or what `Workflow.load` takes."""


def workflow_of(document: Document) -> Workflow:
    """Return a workflow, loaded if it is not one yet."""
    return document if isinstance(document, Workflow) else Workflow.load(document)


class EventLoopThread:
    """An event loop in a thread of its own, so that tests with and without a loop can call it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rune-testing", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Run:
    """One execution. Its properties read the current state; `run["node"]` is the run of a node."""

    def __init__(
        self, engine: EmbeddedEngine, accepted: ExecutionRecord, plan: Plan, flow: Workflow | None = None
    ) -> None:
        self._engine = engine
        self._accepted = accepted
        self._plan = plan
        self._flow = flow

    @property
    def id(self) -> str:
        return self._accepted.id

    @property
    def result(self) -> Result:
        """The result so far."""
        return self._engine.read(self._accepted, self._plan, self._flow)

    @property
    def status(self) -> str:
        return self.result.status

    @property
    def ended(self) -> bool:
        return self.result.ended

    @property
    def output(self) -> Any:
        return self.result.output

    @property
    def failed_items(self) -> int:
        return self.result.failed_items

    @property
    def error(self) -> NodeError | None:
        return self.result.error

    @property
    def nodes(self) -> list[NodeRun]:
        """The runs so far, in the order they ended."""
        return self.result.nodes

    @property
    def timeline(self) -> list[NodeRun]:
        """The runs that began, in the order they began."""
        return self.result.timeline

    def __getitem__(self, key: str | tuple[str, str]) -> NodeRun:
        return self.result[key]

    def __contains__(self, node: object) -> bool:
        return node in self.result

    def __iter__(self) -> Iterator[NodeRun]:
        return iter(self.result)

    def explain(self, node: str | None = None, item: str = "") -> Any:
        """Return what the execution waits for: all of it, or the entry of one node."""
        return self.result.explain(node, item)

    def normal(self) -> dict[str, Any]:
        """Return the execution without ids, times and durations, for snapshots and comparisons."""
        return normal_document(self.result.document)

    def signal(self, name: str, value: Any = None, *, item: str | None = None) -> None:
        """Send a signal."""
        self._engine.signal(self, name, value, item=item)

    @property
    def plan(self) -> Plan:
        """The compiled workflow."""
        return self._plan

    def raise_for_status(self) -> Result:
        """Raise ExecutionFailed unless the execution completed."""
        return self.result.raise_for_status()

    def __repr__(self) -> str:
        return f"<Run {self.id}: {self.status}>"


class EmbeddedEngine:
    """An engine over the embedded backend in a folder, on a virtual clock. It opens when it is first used."""

    def __init__(
        self,
        folder: Path | str,
        mocks: Mocks | None = None,
        *,
        nodes: Sequence[str] = (),
        coverage: Coverage | None = None,
    ) -> None:
        self.folder = Path(folder)
        self._coverage = coverage
        self.mocks = mocks or Mocks()
        self.clock = VirtualClock()
        self._nodes = tuple(nodes)
        self._timers = MockTimers(self.clock)
        self._time: VirtualTime | None = None
        self._registry = MockingRegistry(self.mocks, self._timers.sleep)
        self._thread: EventLoopThread | None = None
        self._stack = AsyncExitStack()
        self._harness: Harness | None = None
        self._plans: dict[str, Plan] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop of the engine, which is opened if it is not."""
        if self._thread is None:
            thread = EventLoopThread()
            try:
                thread.call(self._open())
            except BaseException:
                work.close()
                thread.close()
                raise
            self._thread = thread
        return self._thread.call(work)

    async def _open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._registry.include(full_registry(self._nodes))
        # A test that fails leaves nodes running: nothing waits for them.
        opened = harness(self.folder, clock=self.clock, registry=self._registry, grace=0.0)
        self._harness = await self._stack.enter_async_context(opened)
        self._time = VirtualTime(self._harness, self.clock, self._timers)

    @property
    def harness(self) -> Harness:
        assert self._harness is not None, "the engine is open"
        return self._harness

    @property
    def time(self) -> VirtualTime:
        assert self._time is not None, "the engine is open"
        return self._time

    def close(self) -> None:
        """Stop the engine."""
        if self._thread is not None:
            try:
                if self._coverage is not None and self._harness is not None:
                    settings = embedded_settings(str(self.folder))
                    self._thread.call(self._coverage.read(settings, self._registry.catalogue))
                self._thread.call(self._stack.aclose())
            finally:
                self._thread.close()
                self._thread = None

    def start(self, document: Document, input: Any = None, **options: Any) -> Run:
        """Start a workflow. Nothing runs before `settle`, `advance` or a property of the run is awaited."""
        flow = workflow_of(document)
        plan = self._plan(flow)
        data = input_bytes(plan, input)

        async def begin() -> ExecutionRecord:
            accepted, _ = await self.harness.engine.start(plan, data, **options)
            return accepted

        return Run(self, self.call(begin()), plan, flow)

    def run(self, document: Document, input: Any = None, **options: Any) -> Run:
        """Run a workflow to its end; waits take no real time."""
        return self.finish(self.start(document, input, **options))

    def finish(self, run: Run) -> Run:
        """Let an execution run to its end; waits take no real time."""
        self.call(self._until_end(run.id))
        self.mocks.check()
        return run

    def deploy(self, document: Document, *, alias: str | None = None) -> int:
        """Store a workflow, so that `workflow` nodes can start it; return the number of the version."""
        flow = workflow_of(document)
        plan = self._plan(flow)

        async def store() -> int:
            workflows = self.harness.engine.services.workflows
            return (await workflows.deploy(canonical(plan.definition), alias=alias)).number

        return self.call(store())

    def _plan(self, flow: Workflow) -> Plan:
        self._registry.include(flow.registry(self._nodes))
        plan = plan_of(flow, self._registry)
        self._timers.include(plan)
        self._plans[plan.hash] = plan
        return plan

    def check_mocks(self, ignored: Collection[str] = ()) -> None:
        """Raise UnknownItemError if a mock, other than those of `ignored` names, is for an item that no execution of
        this engine had."""
        self.mocks.check_items(self._plans.values(), ignored)

    def settle(self) -> None:
        """Wait until only time or a signal can make an execution continue."""
        self.call(self._settle())
        self.mocks.check()

    def advance(self, duration: str | float | timedelta) -> None:
        """Advance the time, stopping at each timer, and wait until the engine is idle."""
        self.call(self._advance(milliseconds(duration)))
        self.mocks.check()

    def signal(self, run: Run, name: str, value: Any = None, *, item: str | None = None) -> bool:
        """Send a signal to an execution and wait until the engine is idle; return whether it resumed a node."""

        async def send() -> bool:
            await self.time.settle()
            sent = await self.harness.engine.services.executions.signal(
                run.id, name, msgspec.json.encode(value), item=item
            )
            await self.time.settle()
            return sent.resumed

        return self.call(send())

    def cancel(self, run: Run, reason: str = "") -> str:
        """Cancel an execution and return its status."""

        async def send() -> str:
            status = await self.harness.engine.services.executions.cancel(run.id, reason)
            await self.time.settle()
            return status

        return self.call(send())

    def pause(self, run: Run) -> bool:
        """Pause an execution: running nodes finish, no new ones start. Return whether it was running."""
        return self._control(run, paused=True)

    def resume(self, run: Run) -> bool:
        """Resume a paused execution; return whether it was paused."""
        return self._control(run, paused=False)

    def _control(self, run: Run, *, paused: bool) -> bool:
        async def send() -> bool:
            executions = self.harness.engine.services.executions
            changed = await (executions.pause(run.id) if paused else executions.resume(run.id))
            await self.time.settle()
            return changed

        return self.call(send())

    def retry(self, run: Run, *, failed_items: bool = False) -> Run:
        """Run again what failed, in a new execution."""

        async def begin() -> ExecutionRecord:
            return await self.harness.engine.services.executions.retry(run.id, failed_items=failed_items)

        return self.run_of(self.call(begin()))

    def rerun(self, run: Run, node: str, *, item: str | None = None) -> Run:
        """Run a node and everything after it again, in a new execution."""

        async def begin() -> ExecutionRecord:
            return await self.harness.engine.services.executions.rerun(run.id, node, item=item)

        return self.run_of(self.call(begin()))

    def start_stored(self, workflow: str, input: Any = None, **options: Any) -> Run:
        """Start a deployed workflow: `name`, `name@3` or `name@alias`."""
        name, _, which = workflow.partition("@")
        data = msgspec.json.encode({} if input is None else input)

        async def begin() -> ExecutionRecord:
            executions = self.harness.engine.services.executions
            return await executions.start(name, which or None, data, StartOptions(**options))

        return self.run_of(self.call(begin()))

    def run_of(self, record: ExecutionRecord) -> Run:
        """Return the execution of a record."""

        async def plan() -> Plan:
            return await self.harness.engine.plans.plan(record.hash)

        return Run(self, record, self.call(plan()))

    def read(self, accepted: ExecutionRecord, plan: Plan, flow: Workflow | None) -> Result:
        """Return the result of an execution so far."""
        return self.call(read_result(self.harness.engine, accepted, plan, flow))

    async def _settle(self) -> None:
        await self.time.settle()

    async def _advance(self, ms: int) -> None:
        await self.time.advance(ms)

    async def _until_end(self, execution: str) -> None:
        ending = await self.harness.engine.wait_for(execution)
        while not ending.done():
            await self.time.settle()
            if ending.done() or self.mocks.unmocked:
                return
            due = await self.time.next()
            if due is not None:
                await self.time.move_to(due)
            elif not self.clock.advance_to_next() or not await self._can_go_on(execution):
                raise AssertionError(await self._stuck(execution))

    async def _can_go_on(self, execution: str) -> bool:
        """Return whether a further turn of the scheduler may change something: not if all nodes wait for signals."""
        await self.time.settle()
        waiting = await self._waiting(execution)
        return not waiting or any(not each.reason.startswith("waits for signal") for each in waiting)

    async def _waiting(self, execution: str) -> list[Any]:
        engine = self.harness.engine
        record = await engine.backend.journal.accepted(execution)
        assert record is not None
        plan = await engine.plans.plan(record.hash)
        result = await read_result(engine, record, plan, None)
        found: list[Any] = result.explain()
        return found

    async def _stuck(self, execution: str) -> str:
        lines = [f"`{each.node}` {each.reason}" for each in await self._waiting(execution)]
        return f"the execution cannot go on: {'; '.join(lines) or 'no timer is armed'}. Send a signal, or use start()"
