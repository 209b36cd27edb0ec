"""What the cluster journals of an execution and what the embedded engine does fold to the same state."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Sequence
from typing import Any

import msgspec

from rune.core.execution.explain import Waiting, explain
from rune.core.execution.fact import ExecutionEnded, ExecutionStarted, Fact, NodeSuspended
from rune.core.execution.fold import fold
from rune.core.execution.state import State
from rune.core.plan.compiler import compile_definition
from rune.core.plan.model import Plan
from rune.documents.loader import check_document, check_input, load_document
from rune.ports.journal import StoredFact
from rune.runtime.engine import Engine
from rune.testing.harness import Harness, Run, compiled, harness
from tests.acceptance.conformance.case import Case, load
from tests.integration.cluster.cases import PATIENCE
from tests.integration.cluster.standing import Standing
from tests.support.waiting import until
from tests.unit.core.documents import document, keep, node

CASES = [case for case in load() if not (case.http or case.smtp) and case.expect.get("exit_code") != 2]
TIMES = ("at", "began", "due", "deadline")
ASK = node("ask", "wait", parameters={"resume": "signal"})
AT_REST: dict[str, tuple[dict[str, Any], int]] = {
    "items": (
        document(
            [
                node("start", "input"),
                node("users", "split", parameters={"input_array": "{{ range(3) }}"}),
                keep("first", "{{ $item }}"),
                ASK,
                node("all", "aggregator"),
            ],
            "start>users",
            "users>first",
            "first>ask",
            "ask>all",
            id="items",
        ),
        3,
    ),
    "join": (
        document(
            [node("start", "input"), keep("quick", 1), ASK, node("both", "merge")],
            "start>quick",
            "start>ask",
            "quick>both",
            "ask>both",
            id="join",
        ),
        1,
    ),
    "untaken": (
        document(
            [
                node("start", "input"),
                node("pick", "conditional", parameters={"expression": "{{ false }}"}),
                keep("taken", 1),
                ASK,
                node("tail", "noop"),
            ],
            "start>pick",
            "pick>taken:true",
            "pick>ask:false",
            "taken>tail",
            "ask>tail",
            id="untaken",
        ),
        1,
    ),
}


def _timeless(fact: Fact) -> Fact:
    """The same fact, whenever it was."""
    zeros = {name: 0 for name in TIMES if getattr(fact, name, None) is not None}
    return msgspec.structs.replace(fact, **zeros)


def _folded(plan: Plan, stored: Sequence[StoredFact]) -> tuple[State, list[Waiting]]:
    facts = [
        _timeless(each.fact) for each in stored if not each.late and not isinstance(each.fact, ExecutionEnded)
    ]
    state, _ = fold(plan, [ExecutionStarted(0), *facts], 0)
    return state, explain(plan, state)


def _plan(engine: Engine, case: Case) -> Plan | None:
    verdict = check_document(load_document(case.workflow_source(""), case.suffix), engine.registry.catalogue)
    if verdict.definition is None or not verdict.valid:
        return None
    if check_input(verdict.definition, case.input_source())[1]:
        return None
    return compile_definition(verdict.definition, engine.registry.catalogue)


async def _ended(engine: Engine, case: Case) -> tuple[Any, ...] | None:
    """How it ended; where it came to its natural end, as what. How far the rest of one that was broken off had come is
    a matter of speed."""
    plan = _plan(engine, case)
    if plan is None:
        return None
    accepted, ending = await engine.start(plan, case.input_source().encode(), fake_time=case.fake_time)
    async with asyncio.timeout(PATIENCE):
        end = await ending
    if end.status != "completed":
        return (end.status,)
    return end.status, *_folded(plan, await engine.backend.journal.facts(accepted.id))


async def _each(engine: Engine) -> dict[str, Any]:
    window = asyncio.Semaphore(12)

    async def one(case: Case) -> Any:
        async with window:
            return await _ended(engine, case)

    found = await asyncio.gather(*map(one, CASES))
    return {case.name: each for case, each in zip(CASES, found, strict=True) if each is not None}


def test_the_same_execution_folds_to_the_same_state(travelling: Standing, tmp_path: pathlib.Path) -> None:
    async def go() -> tuple[dict[str, Any], dict[str, Any]]:
        async with travelling.asked() as (engine, _), harness(tmp_path) as embedded:
            return await _each(engine), await _each(embedded.engine)

    there, here = asyncio.run(go())
    assert len(here) >= 80
    assert [name for name in here if there[name] != here[name]] == []


async def _rested(made: Harness, name: str) -> tuple[Run, State, list[Waiting]]:
    """An execution that does nothing more until it is told something."""
    wanted, waits = AT_REST[name]
    run = await made.start(compiled(wanted, made.engine.registry))

    async def asleep() -> bool:
        return sum(isinstance(each.fact, NodeSuspended) for each in await run.facts()) == waits

    await until(asleep, f"{name} waits", PATIENCE)
    return run, *_folded(run.plan, await run.facts())


def test_what_is_at_rest_folds_to_the_same_state(in_place: Standing, tmp_path: pathlib.Path) -> None:
    async def go() -> None:
        async with in_place.asked() as (engine, _), harness(tmp_path) as embedded:
            cluster = Harness(engine, None)
            for name in AT_REST:
                there, *theirs = await _rested(cluster, name)
                _, *ours = await _rested(embedded, name)
                assert theirs == ours, name
                await _said(cluster, there)
                await engine.services.executions.cancel(there.id, "seen")

    asyncio.run(go())


async def _said(cluster: Harness, run: Run) -> None:
    """What Redis holds explains as the fold of the journal does."""
    state, _ = fold(
        run.plan, [ExecutionStarted(run.accepted.at), *(each.fact for each in await run.facts())], 0
    )
    expected = explain(run.plan, state)

    async def same() -> bool:
        return await cluster.engine.backend.state.explain(run.id) == expected

    await until(same, f"{run.plan.definition.id} is explained as {expected}", PATIENCE)
