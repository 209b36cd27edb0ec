"""Logs of attempts: kept beside the output, bounded, redacted, on every backend."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from rune.nodes.attempt_log import MAX_LOG_BYTES, decode_log
from rune.nodes.custom import NodeContext, kind_of, node
from rune.nodes.registry import Registry
from rune.runtime.queries.reader import AttemptReader, NodeLog
from rune.runtime.worker.attempt_logs import log_key
from rune.testing.harness import Harness, Run
from tests.support.backends import Backend, backends
from tests.support.gated_nodes import gate, gated_registry
from tests.support.waiting import until
from tests.support.workflows import of_type, workflow

pytestmark = pytest.mark.long

EVERY = ("embedded", "redis", "rabbitmq")


def reader_of(engine: Harness, run: Run) -> AttemptReader:
    backend = engine.engine.backend
    return AttemptReader(run.accepted, run.plan, backend.journal, backend.blob)


async def logs_of(engine: Harness, run: Run) -> list[NodeLog]:
    return [log async for _, log in reader_of(engine, run).logs() if log is not None]


def messages(log: NodeLog) -> list[tuple[str, str]]:
    return [(each.level, each.message) for each in log.lines]


@backends(*EVERY)
def test_lines_of_context_and_logging_are_kept_per_attempt(backend: Backend) -> None:
    async def go() -> list[tuple[str, str]]:
        async with backend.open(registry=gated_registry()) as engine:
            run = await engine.start(workflow("start>w", w=of_type("gated.wait", name="g")))
            gate("g").set()
            await run.end()
            (log,) = await logs_of(engine, run)
            assert (run.plan.ids[log.node], log.path, log.attempt, log.dropped) == ("w", (), 1, 0)
            return messages(log)

    assert asyncio.run(go()) == [
        ("info", 'before the gate name="g"'),
        ("warning", "standing at g"),
        ("warning", "behind the gate"),
    ]


@backends(*EVERY)
def test_each_attempt_has_its_own_log(backend: Backend) -> None:
    retried = {
        **of_type("gated.second_try", name="g"),
        "retry": {"max_attempts": 2, "initial_delay": 0},
    }

    async def go() -> list[tuple[int, list[tuple[str, str]]]]:
        async with backend.open(registry=gated_registry()) as engine:
            run = await engine.start(workflow("start>t", t=retried))
            gate("g").set()
            await run.end()
            return [(each.attempt, messages(each)) for each in await logs_of(engine, run)]

    assert asyncio.run(go()) == [(1, [("info", "trying attempt=1")]), (2, [("info", "trying attempt=2")])]


@backends(*EVERY)
def test_newest_lines_are_kept_within_bound(backend: Backend) -> None:
    async def go() -> NodeLog:
        async with backend.open(registry=gated_registry()) as engine:
            run = await engine.start(workflow("start>m", m=of_type("gated.lines", count=2_000)))
            await run.end()
            (log,) = await logs_of(engine, run)
            stored = await engine.engine.backend.blob.get(log_key(run.id, run.plan, log.node, (), 1))
            assert stored is not None
            assert len(stored) <= MAX_LOG_BYTES + 100
            return log

    log = asyncio.run(go())
    numbers = [int(each.message.split()[0]) for each in log.lines]
    assert numbers == list(range(log.dropped, 2_000))
    assert len(numbers) > 300


@backends("embedded")
def test_pure_node_and_log_node_are_logged(backend: Backend) -> None:
    document = workflow(
        "start>p p>l",
        p=of_type("gated.pure"),
        l=of_type("log", message="{{ $p }}, then logged", level="warning"),
    )

    async def go() -> list[tuple[str, list[tuple[str, str]]]]:
        async with backend.open(registry=gated_registry()) as engine:
            run = await engine.start(document)
            await run.end()
            return [(run.plan.ids[each.node], messages(each)) for each in await logs_of(engine, run)]

    assert asyncio.run(go()) == [("p", [("debug", "computed")]), ("l", [("warning", "done, then logged")])]


@backends(*EVERY)
def test_node_that_does_not_log_stores_nothing(backend: Backend) -> None:
    async def go() -> tuple[list[NodeLog], bytes | None]:
        async with backend.open(registry=gated_registry()) as engine:
            run = await engine.start(workflow("start>q", q=of_type("gated.quiet")))
            await run.end()
            key = log_key(run.id, run.plan, run.plan.index["q"], (), 1)
            return await logs_of(engine, run), await engine.engine.backend.blob.get(key)

    assert asyncio.run(go()) == ([], None)


@backends(*EVERY)
def test_log_of_running_attempt_is_stored_before_it_ends(backend: Backend) -> None:
    async def go() -> list[str]:
        async with backend.open(registry=gated_registry()) as engine:
            run = await engine.start(workflow("start>w", w=of_type("gated.wait", name="g")))
            key = log_key(run.id, run.plan, run.plan.index["w"], (), 1)
            stored: list[bytes] = []

            async def flushed() -> bool:
                found = await engine.engine.backend.blob.get(key)
                stored[:] = [] if found is None else [found]
                return found is not None

            await until(flushed, "the log is stored", 60.0)
            gate("g").set()
            await run.end()
            return [each.message for each in decode_log(stored[0]).lines]

    assert asyncio.run(go()) == ['before the gate name="g"', "standing at g"]


@backends("embedded")
def test_secret_that_becomes_known_later_is_not_in_stored_log(backend: Backend) -> None:
    @node("t.token")
    async def fetch_token(ctx: NodeContext) -> str:
        ctx.log("got s3cr3t-token-value")
        logging.getLogger("acme").warning("Authorization: Bearer abcdef")
        ctx._call.protect("s3cr3t-token-value")
        return "done"

    kind = kind_of(fetch_token)
    assert kind is not None

    async def go() -> tuple[bytes | None, Any]:
        async with backend.open(registry=Registry([*gated_registry(), kind])) as engine:
            run = await engine.start(workflow("start>t", t=of_type("t.token")))
            await run.end()
            key = log_key(run.id, run.plan, run.plan.index["t"], (), 1)
            return await engine.engine.backend.blob.get(key), await logs_of(engine, run)

    stored, (log,) = asyncio.run(go())
    assert stored is not None
    assert b"s3cr3t" not in stored
    assert b"abcdef" not in stored
    assert log.lines[0].message == "got ***"


@backends("embedded")
def test_log_that_cannot_be_stored_does_not_fail_its_node(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def go() -> str:
        async with backend.open(registry=gated_registry()) as engine:
            blob = engine.engine.backend.blob
            put = blob.put

            async def refuse_logs(key: str, data: bytes) -> None:
                if "/log/" in key:
                    raise OSError("the disk is gone")
                await put(key, data)

            monkeypatch.setattr(blob, "put", refuse_logs)
            run = await engine.start(workflow("start>m", m=of_type("gated.lines", count=3)))
            return (await run.end()).status

    assert asyncio.run(go()) == "completed"
    assert "is not stored: the disk is gone" in caplog.text


@backends(*EVERY)
def test_attempts_tell_begin_end_error_and_worker(backend: Backend) -> None:
    retried = {
        **of_type("gated.second_try", name="g"),
        "retry": {"max_attempts": 2, "initial_delay": 0},
    }

    async def go() -> None:
        async with backend.open(registry=gated_registry()) as engine:
            run = await engine.start(workflow("start>t", t=retried))
            gate("g").set()
            await run.end()
            first, second = await reader_of(engine, run).attempts(run.plan.index["t"], ())
            assert (first.attempt, first.status, second.attempt, second.status) == (1, "failed", 2, "success")
            assert first.error is not None
            assert first.error.code == "BUSY"
            assert second.error is None
            assert first.ended_at is not None
            assert first.started_at <= first.ended_at <= second.started_at
            assert {first.worker, second.worker} == {engine.engine.name}
            assert first.logged
            assert second.logged

    asyncio.run(go())


@backends("embedded", "redis")
def test_attempt_that_runs_is_listed_with_its_worker(backend: Backend) -> None:
    async def go() -> None:
        async with backend.open(registry=gated_registry()) as engine:
            run = await engine.start(workflow("start>w", w=of_type("gated.wait", name="g")))

            async def running() -> bool:
                return bool((await engine.engine.live.running(run.id)).nodes)

            await until(running, "the node runs", 60.0)
            nodes = (await engine.engine.live.running(run.id)).nodes
            (shown,) = await reader_of(engine, run).attempts(run.plan.index["w"], (), nodes)
            assert (shown.status, shown.ended_at, shown.worker) == ("running", None, engine.engine.name)
            gate("g").set()
            await run.end()

    asyncio.run(go())
