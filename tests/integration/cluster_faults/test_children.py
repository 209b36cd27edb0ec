"""A parent learns of the end of its child, also if the write that reports it fails, on every backend and without a
restart of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from rune.runtime import failpoint
from rune.runtime.lifecycle import finisher
from rune.runtime.maintenance import scheduler
from rune.testing.harness import Harness
from tests.support.backends import Backend, ClusterBackend, backends, redis_command, until_suspended
from tests.support.failing_writes import database_of as file_of
from tests.support.failing_writes import refusal
from tests.support.services.postgres import database_of, server
from tests.support.waiting import until
from tests.support.workflows import of_type, wait_for_signal, workflow

KID = {**workflow("start>ask", ask=wait_for_signal()), "id": "kid"}
PARENT = {**workflow("start>call", call=of_type("workflow", workflow="kid")), "id": "parent"}
NOT_NOTIFIED = "not notified of its end yet"

REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON fact FOR EACH ROW EXECUTE FUNCTION refuse()
"""


class Writes:
    """The writes of the journal of a backend, which a test can make fail."""

    def __init__(self, backend: Backend, engine: Harness) -> None:
        self._file = None
        self._database = database_of(Path(backend.settings.home))
        if not isinstance(backend, ClusterBackend):
            self._file = file_of(engine.engine.backend.journal)

    def refuse(self) -> None:
        """Let all later writes fail."""
        if self._file is not None:
            self._file.submit(refusal(on=True))
        else:
            server().sql(REFUSE, self._database)

    async def allow(self) -> None:
        if self._file is not None:
            await self._file.submit(refusal(on=False))
        else:
            server().sql("DROP FUNCTION refuse CASCADE", self._database)


def at_point(monkeypatch: pytest.MonkeyPatch, name: str, passes: int, act: Callable[[], None]) -> None:
    """Act when the engine passes a fail point for the given time."""
    passed: list[str] = []

    def hit(point: str) -> None:
        passed.append(point)
        if point == name and passed.count(name) == passes:
            act()

    monkeypatch.setattr(failpoint, "hit", hit)


async def end_child(engine: Harness, whenever: Callable[[], Awaitable[None]]) -> str:
    """Start a parent, end its child, call `whenever` once the report has failed, and return the parent's status."""
    await engine.engine.services.workflows.deploy(msgspec.json.encode(KID))
    run = await engine.start(PARENT)
    await until_suspended(run)
    (kid,) = await engine.engine.backend.journal.children(run.id)
    listening = engine.engine.backend.state.waiting_for_signal

    async def asked() -> bool:
        return bool(await listening(kid))

    await until(asked, "the child waits")
    await engine.engine.services.executions.signal(kid, "go", b"7")
    await whenever()
    return (await run.end()).status


@backends("embedded", "redis", "rabbitmq")
def test_parent_resumes_soon_after_write_of_report_failed(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(finisher, "FIRST_RETRY_S", 0.05)
    monkeypatch.setattr(scheduler, "RECONCILE_PERIOD_MS", 10**9)

    async def go() -> str:
        async with backend.open() as engine:
            writes = Writes(backend, engine)
            at_point(monkeypatch, "reporting", 1, writes.refuse)

            async def allow() -> None:
                await until(lambda: NOT_NOTIFIED in caplog.text, "the report fails")
                await writes.allow()

            return await end_child(engine, allow)

    assert asyncio.run(go()) == "completed"


@backends("embedded", "redis", "rabbitmq")
def test_parent_resumes_with_next_recovery_if_process_does_not_retry(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a crash of the process that had to report: schedulers that run recover the report periodically."""
    monkeypatch.setattr(finisher, "FIRST_RETRY_S", finisher.LAST_RETRY_S + 1)
    monkeypatch.setattr(scheduler, "RECONCILE_PERIOD_MS", 100)

    async def go() -> str:
        async with backend.open() as engine:
            writes = Writes(backend, engine)
            at_point(monkeypatch, "reporting", 1, writes.refuse)

            async def allow() -> None:
                await until(lambda: NOT_NOTIFIED in caplog.text, "the report fails")
                await writes.allow()

            return await end_child(engine, allow)

    assert asyncio.run(go()) == "completed"


@backends("redis", "rabbitmq")
def test_parent_resumes_after_redis_was_full_when_child_ended(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The report is recorded, and the state of the parent cannot be changed for a while."""
    monkeypatch.setattr(finisher, "FIRST_RETRY_S", 0.05)

    async def go() -> str:
        async with backend.open() as engine:
            report = engine.engine.backend.state.signal
            signalled: list[str] = []

            async def signal(execution: str, fact: object) -> object:
                signalled.append(execution)
                if len(signalled) == 2:
                    await redis_command("CONFIG", "SET", "maxmemory", 1)
                return await report(execution, fact)  # type: ignore[arg-type]

            monkeypatch.setattr(engine.engine.backend.state, "signal", signal)

            async def allow() -> None:
                await until(lambda: NOT_NOTIFIED in caplog.text, "the report fails")
                await redis_command("CONFIG", "SET", "maxmemory", 0)

            try:
                return await end_child(engine, allow)
            finally:
                await redis_command("CONFIG", "SET", "maxmemory", 0)

    assert asyncio.run(go()) == "completed"
