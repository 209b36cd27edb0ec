"""Conformance cases over a fleet, many at once: started here, run by the workers."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from rune.core.plan.compiler import compile_definition
from rune.documents.loader import check_document, check_input, load_document
from rune.runtime.engine import Engine
from rune.runtime.queries.history import read_history
from tests.acceptance.conformance.case import Case
from tests.acceptance.conformance.service_actor import ServiceActor
from tests.acceptance.conformance.slowing import in_time, is_raced
from tests.acceptance.conformance.stubs import Surroundings, surroundings
from tests.acceptance.conformance.verdict import Observed, complaints
from tests.acceptance.conformance.walk import EXIT, Walk
from tests.integration.cluster.scoping import scoped
from tests.integration.cluster.standing import Standing

AT_ONCE = 12
PATIENCE = 120.0  # s until a case that has not ended counts as hung

Judged = Callable[[Case], Awaitable[list[str]]]


async def judged(cases: Sequence[Case], judge: Judged) -> dict[str, list[str]]:
    """What is wrong with which cases."""
    window = asyncio.Semaphore(AT_ONCE)

    async def one(case: Case) -> tuple[str, list[str]]:
        async with window:
            try:
                return case.name, await judge(case)
            except (Exception, asyncio.CancelledError):
                return case.name, [traceback.format_exc(limit=-4)]

    return {name: wrong for name, wrong in await asyncio.gather(*map(one, cases)) if wrong}


async def run_cases(stood: Standing, cases: Sequence[Case]) -> dict[str, list[str]]:
    """Cases that one run decides. Those with mails share a sink, so they go one after the other."""
    async with stood.asked() as (engine, _):
        found = await judged(
            [case for case in cases if not case.smtp], lambda case: _run(engine, stood, case)
        )
        for case in cases:
            if case.smtp:
                stood.sink.mails.clear()
                found |= await judged([case], lambda each: _run(engine, stood, each))
    return found


async def walk_cases(stood: Standing, cases: Sequence[Case]) -> dict[str, list[str]]:
    """Cases in which something is asked of executions."""
    async with stood.asked() as (engine, look):

        async def walk(case: Case) -> None:
            case = scoped(case)
            with around(case) as servers:
                await Walk(case, ServiceActor(engine, look), servers).to_end()

        async def judge(case: Case) -> list[str]:
            await in_time(case, walk)
            return []

        raced = [case for case in cases if is_raced(case)]
        others = [case for case in cases if not is_raced(case)]
        # The first node of its kind in a process waits until that kind is imported: what races the clock comes later.
        return await judged(others, judge) | await judged(raced, judge)


@contextmanager
def around(case: Case) -> Iterator[Surroundings]:
    """The servers of a case, if it calls any."""
    if case.http:
        with surroundings(case) as made:
            yield made
    else:
        yield Surroundings(case)


async def _run(engine: Engine, stood: Standing, case: Case) -> list[str]:
    with around(case) as servers:
        printed = await document_of(engine, case, servers.base_url)
        status = printed["status"]
        seen = Observed(
            exit_code=2 if status == "invalid" else EXIT[status],
            stdout=json.dumps(printed),
            calls=servers.http.calls,
            mails=tuple(stood.sink.mails),
        )
        return complaints(case, seen)


async def document_of(engine: Engine, case: Case, base_url: str = "") -> dict[str, Any]:
    """What `rune run --json` would print of a case."""
    registry = engine.registry
    payload = case.input_source().encode()
    verdict = check_document(load_document(case.workflow_source(base_url), case.suffix), registry.catalogue)
    problems: Sequence[Any] = verdict.problems
    if verdict.definition is not None and verdict.valid:
        _, problems = check_input(verdict.definition, payload)
    if problems or verdict.definition is None:
        return {"status": "invalid", "problems": [msgspec.to_builtins(each) for each in problems]}
    plan = compile_definition(verdict.definition, registry.catalogue)
    accepted, ending = await engine.start(plan, payload, fake_time=case.fake_time)
    async with asyncio.timeout(PATIENCE):
        await ending
    history = await read_history(engine.backend.journal, engine.backend.blob, accepted, plan)
    return await history.document()
