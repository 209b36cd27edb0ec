"""Runs one job of this tree on the package of any commit: `python bench/against_place.py JOB SCALE`, with the sources
of the commit in PYTHONPATH, prints the CPU time per unit as JSON, or what the package lacks.

Names that moved between commits are looked up by each of the places they had.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

# Remove this folder: its file names shadow standard library modules.
sys.path.pop(0)

JOBS = Path(__file__).resolve().parents[1] / "src" / "rune" / "cli" / "bench"


class MissingError(Exception):
    """The package has nothing of these names."""


def imported(*places: str) -> Any:
    """Return the first of these `module:name` that the package has."""
    for place in places:
        module, _, name = place.partition(":")
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise MissingError(f"the package has no {' or '.join(places)}")


def attribute(owner: Any, *paths: str) -> Any:
    """Return the first of these attributes that an object has."""
    for path in paths:
        try:
            return attrgetter(path)(owner)
        except AttributeError:
            continue
    raise MissingError(f"{type(owner).__name__} has no {' or '.join(paths)}")


def loaded(name: str) -> ModuleType:
    """Load a module of the jobs from this tree, under a name that no package has."""
    spec = spec_from_file_location(f"bench_{name}", JOBS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Place:
    """An engine of the package, as the jobs use it."""

    def __init__(self, engine: Any, url: str) -> None:
        self.engine = engine
        self.url = url
        self._parse = imported("rune.core.definition.parser:parse_document", "rune.core.parse:parse_document")
        self._compile = imported(
            "rune.core.plan.compiler:compile_definition", "rune.core.compile:compile_definition"
        )
        self._plans: dict[str, Any] = {}
        self._deployed: set[str] = set()

    def _plan(self, document: Any) -> Any:
        text = json.dumps(document)
        if text not in self._plans:
            parsed = self._parse(text.encode())
            assert not parsed.problems, parsed.problems
            self._plans[text] = self._compile(parsed.definition, self.engine.registry.catalogue)
        return self._plans[text]

    async def complete(self, document: Any, inputs: Sequence[Any], concurrency: int) -> list[float]:
        plan = self._plan(document)

        async def one(payload: bytes) -> None:
            _, ending = await self.engine.start(plan, payload)
            end = await ending
            assert end.status == "completed", f"an execution ended as {end.status}: {end.error}"

        await _in_lanes(one, inputs, concurrency)
        return []

    async def suspend(self, document: Any, inputs: Sequence[Any], concurrency: int) -> None:
        plan, active = self._plan(document), attribute(self.engine, "backend.state.active")

        async def one(payload: bytes) -> None:
            await self.engine.launcher.start(plan, payload)

        await _in_lanes(one, inputs, concurrency)
        while active():  # noqa: ASYNC110 - the state has no notification for this
            await asyncio.sleep(0.005)

    async def deploy(self, document: Any) -> None:
        text = json.dumps(document)
        if text not in self._deployed:
            await attribute(self.engine, "services.workflows.deploy", "desk.deploy")(text.encode())
            self._deployed.add(text)


async def _in_lanes(one: Callable[[bytes], Any], inputs: Sequence[Any], concurrency: int) -> None:
    waiting = iter([json.dumps(each).encode() for each in inputs])

    async def lane() -> None:
        for payload in waiting:
            await one(payload)

    await asyncio.gather(*(lane() for _ in range(min(concurrency, len(inputs)))))


@asynccontextmanager
async def opened(folder: str, *, serves: bool) -> AsyncIterator[Place]:
    """Run an engine with the nodes of the jobs, and its API if asked for."""
    kind_of = imported("rune.nodes.custom:kind_of")
    kinds = [kind for each in vars(loaded("nodes")).values() if (kind := kind_of(each)) is not None]
    registry = imported("rune.nodes.registry:standard_registry")().extended(kinds)
    settings = imported("rune.settings:Settings")(home=folder)
    running_engine = imported("rune.bootstrap:running_engine", "rune.compose:running_engine")
    async with running_engine(settings, registry=registry) as engine:
        if not serves:
            yield Place(engine, "")
            return
        serve = imported("rune.bootstrap.http:serve", "rune.compose.serving:serve")
        open_reader = imported("rune.bootstrap:open_reader", "rune.compose:reader")
        loop = asyncio.get_running_loop()
        stop, ready = loop.create_future(), loop.create_future()
        async with open_reader(settings) as reader:
            options = {"stop": stop, "ready": ready.set_result}
            server = asyncio.create_task(serve(settings, engine, reader, "127.0.0.1", 0, **options))
            try:
                yield Place(engine, await ready)
            finally:
                stop.set_result(None)
                await server


def cpu_s() -> float:
    used = (resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


async def measure(name: str, scale: float, folder: str) -> float:
    """Return the CPU time of a job per unit, in µs."""
    job = loaded("jobs").JOBS[name]
    async with opened(folder, serves=job.serves) as place:
        await job.load(place, job.warm_up, job.concurrency)
        before = cpu_s()
        done = await job.load(place, job.scaled(scale), job.concurrency)
        return float((cpu_s() - before) / done.units * 1e6)


def main() -> None:
    name, scale = sys.argv[1], float(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="rune-against-") as folder:
        try:
            print(json.dumps({"cpu_us": asyncio.run(measure(name, scale, folder))}))
        except MissingError as error:
            print(json.dumps({"missing": str(error)}))


if __name__ == "__main__":
    main()
