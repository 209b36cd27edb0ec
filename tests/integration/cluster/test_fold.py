"""The journals of a cluster and of an embedded engine fold to the same state."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Sequence
from typing import Any

import msgspec

from rune.core.execution.explain import explain
from rune.core.execution.fact import ExecutionEnded, ExecutionStarted, Fact, NodeSuspended
from rune.core.execution.fold import fold
from rune.core.execution.reasons import Waiting
from rune.core.execution.state import State
from rune.core.plan.compiler import compile_definition
from rune.core.plan.model import Plan
from rune.documents.loader import check_document, input_problems, load_document
from rune.ports.journal import StoredFact
from rune.runtime.engine import Engine
from rune.testing.harness import Harness, Run, compiled, harness
from tests.acceptance.conformance.case import Case, load
from tests.support.cluster_conformance import TIMEOUT_S
from tests.support.clusters import Cluster, clusters
from tests.support.documents import document, edit, node
from tests.support.waiting import until

CASES = [case for case in load() if not (case.http or case.smtp) and case.expect.get("exit_code") != 2]
TIMES = ("at", "began", "due", "deadline")
ASK = node("ask", "wait", parameters={"resume": "signal"})
WAITING: dict[str, tuple[dict[str, Any], int]] = {
    "items": (
        document(
            [
                node("start", "input"),
                node("users", "split", parameters={"input_array": "{{ range(3) }}"}),
                edit("first", "{{ $item }}"),
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
            [node("start", "input"), edit("quick", 1), ASK, node("both", "merge")],
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
                edit("taken", 1),
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


def _without_times(fact: Fact) -> Fact:
    """Return the fact with all times set to zero."""
    zeros = {name: 0 for name in TIMES if getattr(fact, name, None) is not None}
    return msgspec.structs.replace(fact, **zeros)


def _folded(plan: Plan, stored: Sequence[StoredFact]) -> tuple[State, list[Waiting]]:
    facts = [
        _without_times(each.fact)
        for each in stored
        if not each.late and not isinstance(each.fact, ExecutionEnded)
    ]
    state, _ = fold(plan, [ExecutionStarted(0), *facts], 0)
    return state, explain(plan, state)


def _plan(engine: Engine, case: Case) -> Plan | None:
    verdict = check_document(load_document(case.workflow_source(""), case.suffix), engine.registry.catalogue)
    if verdict.definition is None or not verdict.valid:
        return None
    if input_problems(verdict.definition, case.input_source()):
        return None
    return compile_definition(verdict.definition, engine.registry.catalogue)


async def _run(engine: Engine, case: Case) -> tuple[Any, ...] | None:
    """Run a case; return its status and, if it completed, its state. Other states depend on timing."""
    plan = _plan(engine, case)
    if plan is None:
        return None
    accepted, ending = await engine.start(plan, case.input_source().encode(), fake_time=case.fake_time)
    async with asyncio.timeout(TIMEOUT_S):
        end = await ending
    if end.status != "completed":
        return (end.status,)
    return end.status, *_folded(plan, await engine.backend.journal.facts(accepted.id))


async def _run_all(engine: Engine) -> dict[str, Any]:
    window = asyncio.Semaphore(12)

    async def one(case: Case) -> Any:
        async with window:
            return await _run(engine, case)

    found = await asyncio.gather(*map(one, CASES))
    return {case.name: each for case, each in zip(CASES, found, strict=True) if each is not None}


@clusters("redis-travelling")
def test_ended_executions_fold_to_same_state(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    async def go() -> tuple[dict[str, Any], dict[str, Any]]:
        async with cluster.connect() as (engine, _), harness(tmp_path) as embedded:
            return await _run_all(engine), await _run_all(embedded.engine)

    on_cluster, embedded = asyncio.run(go())
    assert len(embedded) >= 80
    assert [name for name in embedded if on_cluster[name] != embedded[name]] == []


async def _start_and_wait(made: Harness, name: str) -> tuple[Run, State, list[Waiting]]:
    """Start an execution, wait until only its signals are missing, and return its folded state."""
    wanted, waits = WAITING[name]
    run = await made.start(compiled(wanted, made.engine.registry))

    async def suspended() -> bool:
        facts = await run.facts()
        state, _ = _folded(run.plan, facts)
        idle = state.root.active == 0
        return idle and sum(isinstance(each.fact, NodeSuspended) for each in facts) == waits

    await until(suspended, f"only signals are missing in {name}", TIMEOUT_S)
    return run, *_folded(run.plan, await run.facts())


@clusters("redis-in_place")
def test_waiting_executions_fold_to_same_state(cluster: Cluster, tmp_path: pathlib.Path) -> None:
    async def go() -> None:
        async with cluster.connect() as (engine, _), harness(tmp_path) as embedded:
            on_cluster = Harness(engine, None)
            for name in WAITING:
                run, *state = await _start_and_wait(on_cluster, name)
                _, *expected = await _start_and_wait(embedded, name)
                assert state == expected, name
                await _check_explanation(on_cluster, run)
                await engine.services.executions.cancel(run.id, "seen")

    asyncio.run(go())


async def _check_explanation(cluster: Harness, run: Run) -> None:
    """Check that the state in Redis explains the same as the fold of the journal."""
    state, _ = fold(
        run.plan, [ExecutionStarted(run.accepted.at), *(each.fact for each in await run.facts())], 0
    )
    expected = explain(run.plan, state)

    async def same() -> bool:
        return await cluster.engine.backend.state.explain(run.id) == expected

    await until(same, f"{run.plan.definition.id} is explained as {expected}", TIMEOUT_S)
