"""Run a workflow on an embedded engine in this process."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import iscoroutinefunction
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rune.bootstrap import running_engine
from rune.build.graph import without_open_workflow
from rune.build.results import Result, Waiting
from rune.core.definition.problems import did_you_mean
from rune.core.execution.explain import explain
from rune.core.execution.outcome import Output
from rune.core.plan.compiler import compile_definition
from rune.core.plan.model import Plan
from rune.documents.loader import check_document, check_input
from rune.errors import InvalidDocumentError
from rune.nodes.base import NodeCall, RunnableType
from rune.nodes.registry import Registry
from rune.ports.journal import ExecutionRecord
from rune.runtime.engine import Engine
from rune.runtime.queries.history import read_history
from rune.settings import Settings, load_settings

if TYPE_CHECKING:
    from rune.build.flow import Workflow

T = TypeVar("T")


def run(flow: Workflow, input: Any, **options: Any) -> Result:
    """Run a workflow and wait for its end."""
    return in_event_loop(lambda: arun(flow, input, **options))


def in_event_loop(work: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine to its end: in this thread, or in a thread of its own if a loop runs in this one."""

    async def main() -> T:
        return await work()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    outcome: list[T] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            outcome.append(asyncio.run(main()))
        # Pass on any exception: the caller waits for this thread.
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=body, name="rune-run")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


async def arun(
    flow: Workflow,
    input: Any = None,
    *,
    home: Path | str | None = None,
    nodes: Sequence[str] = (),
    fake_time: bool = False,
    mocks: Mapping[str, Any] | None = None,
    seconds: float | None = None,
) -> Result:
    """Run a workflow in the running event loop; see `Workflow.run`."""
    registry = flow.registry(nodes)
    plan = plan_of(flow, registry)
    if mocks:
        unknown = mocks.keys() - set(plan.ids)
        if unknown:
            first = sorted(unknown)[0]
            raise KeyError(f"the workflow has no node `{first}` to mock: {did_you_mean(first, plan.ids)}")
        registry = _with_outputs(registry, mocks)
    data = input_bytes(plan, input)
    with without_open_workflow():
        if home is not None:
            return await _run(flow, plan, data, registry, str(home), fake_time, seconds)
        with tempfile.TemporaryDirectory(prefix="rune-") as folder:
            return await _run(flow, plan, data, registry, folder, fake_time, seconds)


def plan_of(flow: Workflow, registry: Registry) -> Plan:
    """Compile a workflow; raise InvalidDocumentError with all errors if it is not valid."""
    verdict = check_document(flow.parse(), registry.catalogue)
    if not verdict.valid or verdict.definition is None:
        raise InvalidDocumentError(tuple(each for each in verdict.problems if each.severity == "error"))
    return compile_definition(verdict.definition, registry.catalogue)


def _path_text(value: Any) -> str:
    """Return a path, such as that of a folder of a test, as text."""
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"an input has a {type(value).__name__}, which is not JSON")


def input_bytes(plan: Plan, input: Any) -> bytes:
    """Return the start payload as JSON; raise InvalidDocumentError if it does not match `inputs`."""
    data = msgspec.json.encode({} if input is None else input, enc_hook=_path_text)
    check_input(plan.definition, data)
    return data


async def _run(
    flow: Workflow,
    plan: Plan,
    data: bytes,
    registry: Registry,
    home: str,
    fake_time: bool,
    seconds: float | None,
) -> Result:
    settings = embedded_settings(home)
    async with running_engine(settings, registry=registry) as engine:
        accepted, ending = await engine.start(plan, data, fake_time=fake_time)
        either: set[asyncio.Future[Any]] = {ending, engine.broken}
        try:
            async with asyncio.timeout(seconds):
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            ending.cancel()
        if not ending.done():
            engine.raise_if_broken()
        return await read_result(engine, accepted, plan, flow)


def embedded_settings(home: str) -> Settings:
    """Return the settings of the environment for an embedded engine in a folder."""
    local = {"journal": "", "state": "embedded", "queue": "embedded", "blob": "embedded", "url": ""}
    return msgspec.structs.replace(load_settings(), home=home, durability="relaxed", **local)


async def read_result(engine: Engine, accepted: ExecutionRecord, plan: Plan, flow: Workflow | None) -> Result:
    """Return the result of an execution so far."""
    backend = engine.backend
    history = await read_history(backend.journal, backend.blob, accepted, plan)
    waiting = () if history.end is not None else explained(plan, history.state)
    return Result(await history.document(whole=True), waiting, flow)


def explained(plan: Plan, state: Any) -> list[Waiting]:
    """Return what an execution waits for, with edges named by the node they come from."""
    sources = {each.id: each.src for each in plan.definition.edges}

    def named(edges: Sequence[str]) -> list[str]:
        return [sources.get(each, each) for each in edges]

    return [
        Waiting(
            node=each.node,
            item=each.lineage.strip("/"),
            reason=each.reason,
            arrived=named(each.arrived),
            skipped=named(each.skipped),
            missing=named(each.missing),
            due=each.due,
            done=each.done,
            total=each.total,
        )
        for each in explain(plan, state)
    ]


def _with_outputs(registry: Registry, outputs: Mapping[str, Any]) -> Registry:
    """Return a registry in which some nodes return a given output instead of running."""

    def mocked(kind: RunnableType) -> RunnableType:
        behaviour: Any = kind.run

        def replaced(call: NodeCall[Any]) -> Any:
            return Output(outputs[call.node]) if call.node in outputs else behaviour(call)

        async def replaced_async(call: NodeCall[Any]) -> Any:
            return Output(outputs[call.node]) if call.node in outputs else await behaviour(call)

        chosen = replaced_async if iscoroutinefunction(behaviour) else replaced
        return msgspec.structs.replace(kind, run=chosen)

    return Registry(mocked(kind) for kind in registry)
