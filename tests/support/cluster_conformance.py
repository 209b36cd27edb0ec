"""Runs conformance cases on a cluster, many at once. This process starts them, the workers run them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from rune.core.plan.compiler import compile_definition
from rune.documents.loader import check_document, input_problems, load_document
from rune.runtime.engine import Engine
from rune.runtime.queries.history import read_history
from tests.acceptance.conformance.case import Case
from tests.acceptance.conformance.expectations import Observation, deviations
from tests.acceptance.conformance.service_actor import ServiceActor
from tests.acceptance.conformance.step_runner import StepRunner, exit_code
from tests.acceptance.conformance.stubs import StubServers, stub_servers
from tests.acceptance.conformance.time_scaling import is_timed, run_in_time
from tests.support.clusters import Cluster
from tests.support.written import as_written

CONCURRENCY = 12
TIMEOUT_S = 120.0  # s

CheckCase = Callable[[Case], Awaitable[list[str]]]


async def check_cases(cases: Sequence[Case], check: CheckCase) -> dict[str, list[str]]:
    """Return the deviations of the cases that have any."""
    window = asyncio.Semaphore(CONCURRENCY)

    async def one(case: Case) -> tuple[str, list[str]]:
        async with window:
            try:
                return case.name, await check(case)
            except (Exception, asyncio.CancelledError):
                return case.name, [traceback.format_exc(limit=-4)]

    return {name: wrong for name, wrong in await asyncio.gather(*map(one, cases)) if wrong}


async def run_cases(cluster: Cluster, cases: Sequence[Case]) -> dict[str, list[str]]:
    """Run the cases without steps. Those with mails share a sink and run one after the other."""
    async with cluster.connect() as (engine, _):
        found = await check_cases(
            [case for case in cases if not case.smtp], lambda case: _run(engine, cluster, case)
        )
        for case in cases:
            if case.smtp:
                cluster.sink.mails.clear()
                found |= await check_cases([case], lambda each: _run(engine, cluster, each))
    return found


async def walk_cases(cluster: Cluster, cases: Sequence[Case]) -> dict[str, list[str]]:
    """Run the cases with steps."""
    async with cluster.connect() as (engine, look):

        async def walk(case: Case) -> None:
            case = scoped(case)
            with case_servers(case) as servers:
                await StepRunner(case, ServiceActor(engine, look), servers).run()

        async def check(case: Case) -> list[str]:
            await run_in_time(case, walk)
            return []

        timed = [case for case in cases if is_timed(case)]
        others = [case for case in cases if not is_timed(case)]
        # A node type is imported when it first runs in a process, so cases that depend on real time come last.
        return await check_cases(others, check) | await check_cases(timed, check)


@contextmanager
def case_servers(case: Case) -> Iterator[StubServers]:
    """Start the servers that a case calls, if any."""
    if case.http:
        with stub_servers(case) as made:
            yield made
    else:
        yield StubServers(case)


async def _run(engine: Engine, cluster: Cluster, case: Case) -> list[str]:
    with case_servers(case) as servers:
        printed = await run_document_of(engine, case, servers.base_url)
        seen = Observation(
            exit_code=2 if printed["status"] == "invalid" else exit_code(printed),
            stdout=json.dumps(printed),
            calls=servers.http.calls,
            mails=tuple(cluster.sink.mails),
        )
        return deviations(case, seen)


async def run_document_of(engine: Engine, case: Case, base_url: str = "") -> dict[str, Any]:
    """Run a case and return what `rune run --json` prints."""
    registry = engine.registry
    payload = case.input_source().encode()
    verdict = check_document(load_document(case.workflow_source(base_url), case.suffix), registry.catalogue)
    problems: Sequence[Any] = verdict.problems
    if verdict.definition is not None and verdict.valid:
        problems = input_problems(verdict.definition, payload)
    if problems or verdict.definition is None:
        return {"status": "invalid", "problems": [msgspec.to_builtins(each) for each in problems]}
    plan = compile_definition(verdict.definition, registry.catalogue)
    accepted, ending = await engine.start(plan, payload, fake_time=case.fake_time)
    async with asyncio.timeout(TIMEOUT_S):
        await ending
    history = await read_history(engine.backend.journal, engine.backend.blob, accepted, plan)
    return as_written(await history.document())


def scoped(case: Case) -> Case:
    """Rename the workflows and keys of a case, since all cases share one database."""
    names = frozenset(_names((case.document, case.workflows, case.steps)))
    return dataclasses.replace(
        case,
        document=_renamed(case.document, names, case.name),
        workflows=tuple(_renamed(each, names, case.name) for each in case.workflows),
        steps=tuple(_step(each, names, case.name) for each in case.steps),
    )


def _names(value: Any) -> Iterator[str]:
    """Find the ids of the workflows in a value."""
    if isinstance(value, Mapping):
        if "nodes" in value and isinstance(value.get("id"), str):
            yield value["id"]
        for key, inner in value.items():
            if key != "expect":
                yield from _names(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _names(inner)


def _step(step: Mapping[str, Any], names: frozenset[str], mark: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, inner in step.items():
        found[key] = inner if key == "expect" else _renamed(inner, names, mark)
        if key != "expect" and isinstance(inner, Mapping) and isinstance(inner.get("key"), str):
            found[key]["key"] = f"{inner['key']}-{mark}"
    return found


def _renamed(value: Any, names: frozenset[str], mark: str) -> Any:
    if isinstance(value, list | tuple):
        return [_renamed(inner, names, mark) for inner in value]
    if not isinstance(value, Mapping):
        return value
    found = {key: _renamed(inner, names, mark) for key, inner in value.items()}
    if "nodes" in value or "workflow" in value:
        for key in ("id", "workflow"):
            found[key] = _rename(found.get(key), names, mark)
    if isinstance(value.get("input"), Mapping):
        found["input"] = {key: _rename(inner, names, mark) for key, inner in value["input"].items()}
    return {key: inner for key, inner in found.items() if key in value}


def _rename(name: Any, names: frozenset[str], mark: str) -> Any:
    if not isinstance(name, str):
        return name
    bare, at, which = name.partition("@")
    return f"{bare}-{mark}{at}{which}" if bare in names else name
