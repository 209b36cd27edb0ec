"""Crash an engine at every commit point of a run and let another process go on in the same folder.

Children are forked from the test process, which has imported everything. One is ended at a fail point as `kill -9`
would, a second one completes the execution. The outcome must be that of a run without a crash, and a node with effects
may be called again only under the same idempotency key.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import select
import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from rune.bootstrap import running_engine
from rune.bootstrap.sqlite import create_database
from rune.build.flow import Workflow
from rune.build.local import embedded_settings, input_bytes, plan_of, read_result
from rune.build.results import Result
from rune.core.definition.model import canonical
from rune.core.json_decoder import read_json
from rune.core.plan.model import Plan
from rune.runtime import failpoint
from rune.runtime.maintenance.scheduler import SWEEP_PERIOD_MS
from rune.settings import Settings
from rune.testing.coverage import Coverage
from rune.testing.engine import Document, workflow_of
from rune.testing.expectations import differences, normal_document
from rune.testing.harness import Harness, VirtualClock
from rune.testing.mocks import MockingRegistry, Mocks, calls_by_effect
from rune.testing.virtual_time import MockTimers, VirtualTime

KILLED = 137
TIMEOUT_S = 60.0
_KEY = "crash-test"
_EXECUTION = "crash-test"
"""The id of the execution in each run: identifiers and idempotency keys follow from it."""

_REPORT = "report.json"
_CALLS = "calls.jsonl"


class CrashTestError(AssertionError):
    """An execution ended differently after a crash, or an effect was repeated under another key."""


class Point(tuple[str, int]):
    """A fail point and the passing at which the process ends."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{self[0]}:{self[1]}"


class CrashRun(Result):
    """The result of an execution that ended. `crash` is the point at which its first process ended, None in the run
    without one."""

    def __init__(self, document: dict[str, Any], flow: Workflow, folder: Path, crash: Point | None) -> None:
        super().__init__(document, flow=flow)
        self.folder = folder
        self.crash = crash

    @property
    def result(self) -> Result:
        """This result; the runs of a test engine have the same attribute."""
        return self

    def normal(self) -> dict[str, Any]:
        """Return the execution without ids, times and durations, and with `{folder}` in place of the folder of the run,
        which differs from run to run."""
        text = msgspec.json.encode(normal_document(self.document)).decode()
        within = msgspec.json.encode(str(self.folder)).decode()[1:-1]
        normal: dict[str, Any] = read_json(text.replace(within, "{folder}"))
        return normal


class CrashTester:
    """Runs a workflow once without a crash and then once per point. `folder` is new for each of these runs."""

    def __init__(
        self,
        base: Path,
        mocks: Mocks,
        *,
        nodes: Sequence[str] = (),
        at: str | None = None,
        most: int | None = None,
        coverage: Coverage | None = None,
    ) -> None:
        self._coverage = coverage
        self._base = base
        self._mocks = mocks
        self._nodes = tuple(nodes)
        self._at = at
        self._most = most
        self._count = 0
        self._point: Point | None = None
        self._passed: Counter[str] = Counter()
        self._clean: dict[str, Any] | None = None
        self._stored: dict[str, Workflow] = {}
        self.folder = self._next_folder()
        self.repeated: dict[Point, list[str]] = {}
        self.unreached: list[Point] = []
        """Points that the run which was to crash there did not pass."""

    def _next_folder(self) -> Path:
        self._count += 1
        folder = self._base / f"run-{self._count}"
        folder.mkdir(parents=True)
        return folder

    def points(self) -> list[Point]:
        """Return the points that the run without a crash passed, spread evenly if there are more than `most`."""
        found = [
            Point((name, passing))
            for name, count in self._passed.items()
            if self._at in (None, name)
            for passing in range(1, count + 1)
        ]
        if self._most is None or len(found) <= self._most:
            return found
        return [found[at * len(found) // self._most] for at in range(self._most)]

    def begin(self, point: Point) -> None:
        """Crash the next run at a point."""
        self._point = point
        self.folder = self._next_folder()
        self._mocks.reset()

    def deploy(self, document: Document) -> None:
        """Store a workflow in the folder of each further run, so that `workflow` nodes can start it."""
        flow = workflow_of(document)
        self._stored[flow.id] = flow

    def run(self, document: Document, input: Any = None) -> CrashRun:
        """Run a workflow: without a crash at first, later with a crash at the current point and a second process."""
        flow = workflow_of(document)
        point = self._point
        # Before the fork, so that the children need not do it, nor import what it needs.
        clock = VirtualClock()
        timers = MockTimers(clock)
        registry = MockingRegistry(self._mocks, timers.sleep)
        for each in (*self._stored.values(), flow):
            registry.include(each.registry(self._nodes))
        stored = [plan_of(each, registry) for each in self._stored.values()]
        plan = plan_of(flow, registry)
        for mocked in (*stored, plan):
            timers.include(mocked)
        children = [canonical(child.definition) for child in stored]
        work = partial(self._execute, registry, timers, clock, plan, input_bytes(plan, input), children)
        if point is not None:
            code = self._fork(work, lambda: failpoint.arm(*point))
            if code not in (0, KILLED):
                raise CrashTestError(
                    f"the process that was to crash at {point} ended with {code}:\n{self._error()}"
                )
            if code == 0:
                self.unreached.append(point)
        code = self._fork(work, lambda: self._count_points() if point is None else None)
        if code != 0:
            raise CrashTestError(
                f"the process after the crash at {point} ended with {code}:\n{self._error()}"
            )
        report = json.loads((self.folder / _REPORT).read_text(encoding="utf-8"))
        self._mocks.replay(self.folder / _CALLS)
        if self._coverage is not None:
            self._coverage.merge(report["coverage"])
        if report["unmocked"]:
            self._mocks.unmocked.extend(report["unmocked"])
            self._mocks.check()
        made = CrashRun(report["document"], flow, self.folder, point)
        self._compare(made, report["points"])
        return made

    def each(self, document: Document, input: Any = None) -> Any:
        """Yield the run without a crash, then one per point."""
        flow = workflow_of(document)
        yield self.run(flow, input)
        for point in self.points():
            self._point = point
            self.folder = self._next_folder()
            yield self.run(flow, input)

    def _compare(self, run: CrashRun, points: Mapping[str, int]) -> None:
        normal = run.normal()
        if run.crash is None:
            self._passed = Counter(points)
            self._clean = normal
        elif normal != self._clean:
            found = "; ".join(differences(self._clean or {}, normal)[:10])
            raise CrashTestError(f"after a crash at {run.crash}: {found}")
        self._check_keys(run.crash)

    def _check_keys(self, crash: Point | None) -> None:
        """Note the effects that were called again; raise CrashTestError for one with different keys, or without one."""
        when = "without a crash" if crash is None else f"after a crash at {crash}"
        for effect, calls in calls_by_effect(self.folder / _CALLS).items():
            if crash is not None and calls.repeated:
                self.repeated.setdefault(crash, []).append(effect.node)
            keys = set(calls.keys)
            if len(keys) > 1:
                raise CrashTestError(
                    f"{when}: `{effect}` was called {len(calls.keys)} times under {len(keys)} keys"
                )
            if calls.repeated and keys == {""}:
                raise CrashTestError(f"{when}: `{effect}` was called again without an idempotency key")

    def _count_points(self) -> None:
        self._passed = Counter()

        def count(name: str) -> None:
            self._passed[name] += 1

        failpoint.hit = count

    def _error(self) -> str:
        path = self.folder / "error.txt"
        return path.read_text(encoding="utf-8") if path.exists() else "it left no message"

    def _fork(self, work: Callable[[], Coroutine[Any, Any, None]], prepare: Callable[[], None]) -> int:
        """Run the workflow in a forked process and return its exit code."""
        create_database(self._settings())
        sys.stdout.flush()
        sys.stderr.flush()
        alive, held = os.pipe()
        with warnings.catch_warnings():
            # Newer versions of Python warn about threads of the test runner, which the child does not use.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(alive)
                # Collections in the child need not visit, and so copy, the objects of the test runner.
                gc.freeze()
                prepare()
                self._mocks.record_to(self.folder / _CALLS)
                asyncio.run(work())
            # Nothing of the test runner may run in the child.
            except BaseException:
                (self.folder / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
            finally:
                os._exit(code)
        os.close(held)
        try:
            return _wait(child, alive)
        finally:
            os.close(alive)

    def _settings(self) -> Settings:
        return embedded_settings(str(self.folder / "home"))

    async def _execute(
        self,
        registry: MockingRegistry,
        timers: MockTimers,
        clock: VirtualClock,
        plan: Plan,
        data: bytes,
        children: Sequence[bytes],
    ) -> None:
        # The time stands still but for waits and mocks that take time, so that values that depend on it are the same.
        registry.resume(self.folder / _CALLS)
        async with running_engine(
            self._settings(), registry=registry, clock=clock, accept_calls=False
        ) as engine:
            for definition in children:
                await engine.services.workflows.deploy(definition)
            accepted, ending = await engine.start(plan, data, key=_KEY, fake_time=True, execution=_EXECUTION)
            time = VirtualTime(Harness(engine, clock), clock, timers)
            async with asyncio.timeout(TIMEOUT_S / 2):
                while not ending.done():
                    await time.settle()
                    if ending.done():
                        break
                    due = await time.next() if timers.count else None
                    if due is not None:
                        await time.move_to(due)
                    else:
                        # What the first process left behind may be found only by a later turn of the scheduler.
                        clock.advance(SWEEP_PERIOD_MS)
            result = await read_result(engine, accepted, plan, None)
            if self._coverage is not None and self._point is None:
                await self._coverage.read(self._settings(), registry.catalogue)
            report = {
                "coverage": {} if self._coverage is None else self._coverage.taken,
                "document": result.document,
                "points": dict(self._passed),
                "unmocked": self._mocks.unmocked,
            }
            target = self.folder / _REPORT
            target.write_text(json.dumps(report), encoding="utf-8")
            # Closing the engine takes longer than the run and shows nothing further.
            os._exit(0)


def _wait(child: int, alive: int) -> int:
    """Return the exit code of a child, which holds the other end of the pipe `alive`; end it if it hangs."""
    readable, _, _ = select.select([alive], [], [], TIMEOUT_S)
    if not readable:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
