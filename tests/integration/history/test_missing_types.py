"""Reading needs no node type: a process without the custom types of an execution shows it."""

from __future__ import annotations

import asyncio
from typing import Any

from rune.bootstrap import open_reader
from rune.core.execution.explain import explain
from rune.core.execution.token import Token
from rune.nodes.registry import standard_registry
from rune.runtime.execution_data import ExecutionDataCache
from rune.runtime.plan_cache import PlanCache, QueueRouter
from rune.runtime.queries.verify import VerificationReport, verify_execution
from tests.support.backends import Backend, backends, until_suspended
from tests.support.gated_nodes import gated_registry
from tests.support.workflows import node_entry, of_type, wait_for_signal, workflow
from tests.support.written import as_written

DOCUMENT = workflow("start>p p>w", p=of_type("gated.pure"), w=wait_for_signal())


@backends("embedded", "redis", "rabbitmq")
def test_reader_without_custom_type_shows_runs_events_and_what_waits(backend: Backend) -> None:
    async def go() -> tuple[dict[str, Any], list[str], list[str]]:
        async with backend.open(registry=gated_registry()) as engine:
            run = await engine.start(DOCUMENT)
            await until_suspended(run)
            async with open_reader(backend.settings) as reader:
                history = await reader.history(run.id)
                plan, state = await reader.state(run.id, engine.engine.backend.clock.now())
                events = [each.kind for each in await reader.events(run.id)]
                return (
                    as_written(await history.document()),
                    events,
                    [each.node for each in explain(plan, state)],
                )

    document, events, waiting = asyncio.run(go())
    entry = node_entry(document, "p")
    assert (entry["status"], entry["output"]) == ("success", "done")
    assert events == ["execution.accepted", "node.success", "node.waiting"]
    assert waiting == ["w"]


@backends("embedded", "redis", "rabbitmq")
def test_verifying_without_custom_types_takes_effects_from_what_the_worker_recorded(backend: Backend) -> None:
    document = workflow("start>p p>q", p=of_type("gated.pure"), q=of_type("gated.quiet"))

    async def go() -> VerificationReport:
        async with backend.open(registry=gated_registry()) as engine:
            run = await engine.start(document)
            await run.end()
            async with open_reader(backend.settings) as reader:
                plan, accepted = await reader.plan(run.id), await reader.accepted(run.id)
                summary = await reader.execution(run.id)
                assert summary is not None
                facts, claims = await reader.facts(run.id), await reader.claims(run.id)
                assert not plan.nodes[plan.index["p"]].pure  # nothing is known of the type
                return verify_execution(plan, accepted, facts, claims, summary)

    report = asyncio.run(go())

    assert report.violations == ()
    assert (report.results, report.effects, report.claims, report.repeated) == (2, 1, 1, 0)


@backends("redis", "rabbitmq")
def test_messages_are_made_without_custom_types(backend: Backend) -> None:
    document = workflow("start>p p>w", p={**of_type("gated.pure"), "queue": "gpu"}, w=wait_for_signal())

    async def go() -> tuple[str, str, tuple[str, ...]]:
        async with backend.open(registry=gated_registry()) as engine:
            run = await engine.start(document)
            stores = engine.engine.backend
            catalogue = standard_registry().catalogue
            lacking, readable = (
                ExecutionDataCache(
                    stores.journal,
                    stores.blob,
                    PlanCache(stores.journal, catalogue, reading=reading),
                    stores.clock,
                )
                for reading in (False, True)
            )
            router = QueueRouter(lacking, readable)
            tokens = [Token(at) for at in range(3)]
            ids = (await router.message_context(run.id, tokens)).ids
            return await router.queue_of(run.id, tokens[1]), await router.queue_of(run.id, tokens[2]), ids

    assert asyncio.run(go()) == ("gpu", "default", ("start", "p", "w"))
