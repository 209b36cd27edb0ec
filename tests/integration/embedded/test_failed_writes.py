"""The embedded engine after writes have failed for a while, as on a full disk."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rune.adapters.sqlite.database import ExclusiveWrite
from rune.adapters.sqlite.stores import SqliteIndex, SqliteStores
from rune.bootstrap import open_reader
from rune.codec.facts import KINDS
from rune.core.execution.fact import ExecutionEnded, NodeResult, NodeSuspended
from rune.core.execution.stored_value import Inline
from rune.nodes.custom import kind_of, node
from rune.nodes.registry import Registry, standard_registry
from rune.ports.journal import ExecutionRecord, StoreUnavailableError
from rune.runtime import failpoint
from rune.runtime.queries.verify import VerificationReport, verify_execution
from rune.settings import Settings
from rune.testing.harness import VirtualClock, harness
from tests.support.async_test import async_test
from tests.support.documents import document
from tests.support.documents import node as node_of
from tests.support.failing_writes import database_of, failing_writes, refusal
from tests.support.sqlite_stores import sqlite_stores

EFFECT = document([node_of("in", "input"), node_of("send", "test.gated")], "in>send")


class Gate:
    """Holds the node `test.gated` while it runs."""

    def __init__(self) -> None:
        self.begun, self.opened = asyncio.Event(), asyncio.Event()

    def registry(self) -> Registry:
        @node("test.gated")
        async def gated() -> str:
            self.begun.set()
            await self.opened.wait()
            return "sent"

        kind = kind_of(gated)
        assert kind is not None
        return standard_registry().extended([kind])


async def verify(folder: Path, execution: str, registry: Registry) -> VerificationReport:
    async with open_reader(Settings(home=str(folder)), registry.catalogue) as reader:
        summary = await reader.execution(execution)
        assert summary is not None
        return verify_execution(
            await reader.plan(execution),
            await reader.accepted(execution),
            await reader.facts(execution),
            await reader.claims(execution),
            summary,
        )


@async_test
async def test_verify_of_execution_whose_result_was_refused_at_first_finds_no_violation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    registry = gate.registry()
    async with harness(tmp_path, registry=registry) as engine:
        run = await engine.start(EFFECT)
        await gate.begun.wait()
        async with failing_writes(engine.engine.backend.journal):
            gate.opened.set()
            await engine.wait_for(lambda: "keeping a result" in caplog.text)
        await run.end()

        report = await verify(tmp_path, run.id, registry)

    assert report.violations == ()
    assert (report.status, report.effects, report.claims) == ("completed", 1, 1)


def result(value: bytes = b"1") -> NodeResult:
    return NodeResult(1, (), 5, "ok", value=Inline(value))


async def accept(stores: SqliteStores, execution: str = "x") -> None:
    await stores.journal.accept(
        ExecutionRecord(id=execution, workflow="w", hash="h", at=1, input=Inline(b"{}"))
    )


async def claims(stores: SqliteStores, execution: str = "x") -> dict[tuple[int, Any], int]:
    return await SqliteIndex(stores.database).claims(execution)


@async_test
async def test_claim_submitted_with_rejected_fact_is_stored(tmp_path: Path) -> None:
    async with sqlite_stores(tmp_path) as stores:
        await accept(stores)
        await accept(stores, "other")
        await stores.journal.record("x", [result()])
        await stores.journal.count_claim("other", 1, (), (1, 1), 2)

        assert await stores.journal.record("x", [result(b"2")]) == [result()]

        assert await claims(stores, "other") == {(1, ()): 1}


@async_test
async def test_claim_submitted_while_writes_fail_is_stored_with_next_write(tmp_path: Path) -> None:
    async with sqlite_stores(tmp_path) as stores:
        await accept(stores)
        await stores.journal.count_claim("x", 1, (), (1, 1), 2)
        async with failing_writes(stores.journal):
            with pytest.raises(StoreUnavailableError):
                await stores.journal.record("x", [result()])

        await accept(stores, "other")

        assert await claims(stores) == {(1, ()): 1}


@async_test
async def test_claim_submitted_while_writes_fail_is_stored_at_close(tmp_path: Path) -> None:
    async with sqlite_stores(tmp_path) as stores:
        await accept(stores)
        await stores.journal.count_claim("x", 1, (), (1, 1), 2)
        async with failing_writes(stores.journal):
            with pytest.raises(StoreUnavailableError):
                await stores.journal.record("x", [result()])

    async with sqlite_stores(tmp_path) as stores:
        assert await claims(stores) == {(1, ()): 1}


@async_test
async def test_fact_recorded_behind_end_whose_write_fails_is_not_late(tmp_path: Path) -> None:
    gate = threading.Event()

    def block(db: sqlite3.Connection) -> None:
        gate.wait()

    async with sqlite_stores(tmp_path) as stores:
        await accept(stores)
        database = database_of(stores.journal)
        refused = database.submit(refusal(on=True))
        blocked = database.submit(ExclusiveWrite(block))
        ending = asyncio.ensure_future(stores.journal.record("x", [ExecutionEnded(5, "cancelled")]))
        await asyncio.sleep(0)
        allowed = database.submit(refusal(on=False))
        recording = asyncio.ensure_future(stores.journal.record("x", [result()]))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(refused, blocked, allowed)

        with pytest.raises(StoreUnavailableError):
            await ending
        await recording

        (stored,) = await stores.journal.facts("x")
        assert (stored.fact, stored.late) == (result(), False)
        assert await stores.journal.end("x") is None


@async_test
async def test_second_end_is_stored_if_write_of_first_fails(tmp_path: Path) -> None:
    gate = threading.Event()

    def block(db: sqlite3.Connection) -> None:
        gate.wait()

    async with sqlite_stores(tmp_path) as stores:
        await accept(stores)
        database = database_of(stores.journal)
        refused = database.submit(refusal(on=True))
        blocked = database.submit(ExclusiveWrite(block))
        first = asyncio.ensure_future(stores.journal.record("x", [ExecutionEnded(5, "cancelled")]))
        await asyncio.sleep(0)
        allowed = database.submit(refusal(on=False))
        second = asyncio.ensure_future(stores.journal.record("x", [ExecutionEnded(6, "failed")]))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(refused, blocked, allowed)

        with pytest.raises(StoreUnavailableError):
            await first
        await second

        end = await stores.journal.end("x")
        assert end is not None
        assert end.status == "failed"


KID = document(
    [node_of("in", "input"), node_of("ask", "wait", parameters={"resume": "signal"})], "in>ask", id="kid"
)
PARENT = document(
    [
        node_of("in", "input"),
        node_of("call", "workflow", parameters={"workflow": "kid"}),
        node_of("send", "test.gated"),
    ],
    "in>call",
    "in>send",
    id="parent",
)


@async_test
async def test_parent_of_child_that_ended_while_writes_failed_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    async with harness(tmp_path, registry=gate.registry(), grace=1.0) as engine:
        database = database_of(engine.engine.backend.journal)
        await engine.engine.services.workflows.deploy(msgspec.json.encode(KID))
        run = await engine.start(PARENT)
        await gate.begun.wait()  # the running node keeps the parent in memory
        suspended = f"SELECT count(*) FROM fact WHERE kind = {KINDS[NodeSuspended]}"
        await engine.wait_for(lambda: database.reader.execute(suspended).fetchone() == (2,))
        (kid,) = await engine.engine.backend.journal.children(run.id)
        passed: list[str] = []

        def refuse(point: str) -> None:
            passed.append(point)
            if (
                passed.count("signalled") == 2 and point == "signalled"
            ):  # the signal to the parent is recorded
                database.submit(refusal(on=True))

        monkeypatch.setattr(failpoint, "hit", refuse)
        await engine.engine.services.executions.signal(kid, "ask", b"7")
        await engine.wait_for(lambda: "not notified of its end yet" in caplog.text)
        await database.submit(refusal(on=False))
        gate.opened.set()

        end = await run.end()

        assert end.status == "completed"


@async_test
async def test_wait_that_is_due_while_end_of_other_execution_fails_resumes(tmp_path: Path) -> None:
    clock = VirtualClock()
    overdue = document(
        [node_of("in", "input"), node_of("w", "wait", parameters={"resume": "signal"})],
        "in>w",
        id="o",
        settings={"timeout": 1},
    )
    waiting = document(
        [node_of("in", "input"), node_of("w", "wait", parameters={"amount": 1, "unit": "seconds"})],
        "in>w",
        id="w",
    )
    async with harness(tmp_path, clock=clock) as engine:
        runs = [await engine.start(overdue), await engine.start(waiting)]
        await engine.settle()
        async with failing_writes(engine.engine.backend.journal):
            clock.advance(1_000)
            await engine.settle()

        ends = [await each.end() for each in runs]

        assert [each.status for each in ends] == ["failed", "completed"]
