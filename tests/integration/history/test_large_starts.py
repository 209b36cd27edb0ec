"""Large start payloads are blobs: the record of the execution names one, and everything that reads the payload finds
it there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rune.adapters.postgres.journal import PostgresBlobs
from rune.adapters.sqlite.stores import SqliteBlobs
from rune.bootstrap import open_reader
from rune.codec.records import encode_record
from rune.core.execution.stored_value import Inline, Large
from rune.core.limits import LIMITS
from rune.errors import InvalidDocumentError
from rune.ports.journal import ExecutionRecord, IdempotencyConflictError
from rune.ports.retention import Rule
from rune.runtime.lifecycle.launcher import StartOptions
from rune.testing.harness import Harness
from tests.support.backends import Backend, EmbeddedBackend, backends
from tests.support.workflows import edit, fail, node_entry, workflow

pytestmark = pytest.mark.long

every_backend = backends("embedded", "redis", "rabbitmq")
ONE_MB = {"n": 7, "rows": [{"id": each, "name": f"row {each}"} for each in range(30_000)]}
READER = workflow(
    "start>n n>rows", n=edit(x="{{ $trigger.n }}"), rows=edit(x="{{ $trigger.rows[29999].id }}")
)
UNREAD = workflow("start>n", n=edit(x=1))


async def record_of(engine: Harness, execution: str) -> ExecutionRecord:
    found = await engine.engine.backend.journal.accepted(execution)
    assert found is not None
    return found


async def blob_of(engine: Harness, execution: str) -> bytes | None:
    stored = (await record_of(engine, execution)).input
    assert isinstance(stored, Large)
    return await engine.engine.backend.blob.get(stored.key)


async def start(engine: Harness, document: dict[str, Any], payload: bytes, **options: Any) -> ExecutionRecord:
    return await engine.engine.services.executions.start_definition(
        msgspec.json.encode(document), payload, StartOptions(**options)
    )


@every_backend
def test_large_start_payload_is_a_blob_that_nodes_read(backend: Backend) -> None:
    async def go() -> tuple[ExecutionRecord, dict[str, Any]]:
        async with backend.open() as engine:
            run = await engine.start(READER, ONE_MB)
            await run.end()
            return await record_of(engine, run.id), await run.document()

    record, result = asyncio.run(go())
    assert isinstance(record.input, Large)
    assert record.input.size == len(msgspec.json.encode(ONE_MB))
    assert record.format == 2
    assert node_entry(result, "rows")["output"]["x"] == 29_999
    assert result["context"]["$trigger"] == ONE_MB


@every_backend
def test_start_payload_of_ten_megabytes_runs(backend: Backend) -> None:
    payload = {"n": 1, "text": "x" * 10_000_000}

    async def go() -> dict[str, Any]:
        async with backend.open() as engine:
            return await engine.run(workflow("start>n", n=edit(x="{{ $trigger.n }}")), payload)

    result = asyncio.run(go())
    assert (result["status"], node_entry(result, "n")["output"]["x"]) == ("completed", 1)


@backends("embedded", "redis")
def test_small_start_payload_stays_in_its_record_in_the_first_format(backend: Backend) -> None:
    async def go() -> ExecutionRecord:
        async with backend.open() as engine:
            run = await engine.start(UNREAD, {"n": 1})
            await run.end()
            return await record_of(engine, run.id)

    record = asyncio.run(go())
    assert (record.input, record.format) == (Inline(b'{"n":1}'), 1)


@backends("embedded", "redis")
def test_repeated_key_compares_large_payloads(backend: Backend) -> None:
    payload = msgspec.json.encode(ONE_MB)

    async def go() -> tuple[str, str]:
        async with backend.open() as engine:
            first = await start(engine, UNREAD, payload, key="k")
            second = await start(engine, UNREAD, payload, key="k")
            with pytest.raises(IdempotencyConflictError):
                await start(engine, UNREAD, payload.replace(b'"n":7', b'"n":8'), key="k")
            assert await blob_of(engine, first.id) == payload
            return first.id, second.id

    first, second = asyncio.run(go())
    assert first == second


@backends("embedded", "redis")
def test_key_of_large_start_written_by_an_earlier_version_is_known(backend: Backend) -> None:
    payload = msgspec.json.encode(ONE_MB)

    async def go() -> tuple[str, str]:
        async with backend.open() as engine:
            journal, run = engine.engine.backend.journal, await engine.start(UNREAD)
            plan = run.plan
            old = ExecutionRecord(
                id="old", workflow="w", hash=plan.hash, at=run.accepted.at, input=Inline(payload), key="k"
            )
            await journal.accept(old)
            again = await start(engine, UNREAD, payload, key="k")
            return again.id, old.id

    again, old = asyncio.run(go())
    assert again == old


@backends("embedded", "redis")
def test_refused_start_leaves_no_blob(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    payload = msgspec.json.encode(ONE_MB)
    stored: list[str] = []

    async def go() -> list[bytes | None]:
        async with backend.open() as engine:
            blob = engine.engine.backend.blob
            put = blob.put

            async def noting(key: str, data: bytes) -> None:
                stored.append(key)
                await put(key, data)

            monkeypatch.setattr(blob, "put", noting)
            first = await start(engine, UNREAD, payload, key="k")
            await start(engine, UNREAD, payload, key="k")
            with pytest.raises(IdempotencyConflictError):
                await start(engine, UNREAD, b"[" + payload + b"]", key="k")
            mine = f"{first.id}/"
            return [await blob.get(each) for each in stored if not each.startswith(mine)]

    assert asyncio.run(go()) == [None, None]


@backends("embedded", "redis")
def test_repeated_execution_reads_the_payload_of_the_first_and_keeps_it(backend: Backend) -> None:
    document = workflow("start>n n>f", n=edit(x="{{ $trigger.n }}"), f=fail())
    newest_only = (Rule(keep=1),)

    async def go() -> tuple[Any, bytes | None, bytes | None]:
        async with backend.open() as engine:
            services = engine.engine.services.executions
            first = await engine.start(document, ONE_MB)
            await first.end()
            again = await services.rerun(first.id, "n")
            await services.wait_for_end(again.id)
            await services.delete_ended(newest_only)
            kept = await blob_of(engine, first.id)
            history = await engine.engine.backend.journal.accepted(again.id)
            stored = await record_of(engine, first.id)
            await services.delete_ended((Rule(keep=0),))
            await services.delete_ended((Rule(keep=0),))
            assert isinstance(stored.input, Large)
            return history, kept, await engine.engine.backend.blob.get(stored.input.key)

    again, kept, gone = asyncio.run(go())
    assert again is not None
    assert kept == msgspec.json.encode(ONE_MB)
    assert gone is None


@backends("embedded", "redis")
def test_record_of_earlier_version_with_a_large_payload_is_read_and_repeated(backend: Backend) -> None:
    payload = msgspec.json.encode(ONE_MB)

    async def go() -> tuple[Any, ExecutionRecord]:
        async with backend.open() as engine:
            journal, services = engine.engine.backend.journal, engine.engine.services.executions
            run = await engine.start(READER, ONE_MB)
            await run.end()
            old = ExecutionRecord(
                id="old", workflow="w", hash=run.plan.hash, at=run.accepted.at, input=Inline(payload)
            )
            await journal.accept(old)
            await engine.engine.launcher.activate(old)
            await services.wait_for_end("old")
            again = await services.rerun("old", "n")
            await services.wait_for_end(again.id)
            facts = await journal.facts(again.id)
            return facts, await record_of(engine, again.id)

    facts, again = asyncio.run(go())
    assert isinstance(again.input, Large)
    assert again.input.key.startswith(again.id)
    assert any(getattr(each.fact, "status", "") == "completed" for each in facts)


@backends("embedded", "redis")
def test_child_with_a_large_payload_has_a_blob_of_its_own(backend: Backend) -> None:
    child = {**READER, "id": "child"}
    parent = workflow(
        "start>c c>out",
        c={"type": "workflow", "parameters": {"workflow": "child", "input": "{{ $trigger }}"}},
        out=edit(x="{{ $c.rows.x }}"),
    )

    async def go() -> dict[str, Any]:
        async with backend.open() as engine:
            await engine.engine.services.workflows.deploy(msgspec.json.encode(child))
            return await engine.run(parent, ONE_MB)

    result = asyncio.run(go())
    assert result["status"] == "completed", result["error"]


@backends("embedded", "redis")
def test_list_of_executions_with_large_payloads_reads_none_of_them(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    async def go() -> tuple[int, int]:
        async with backend.open() as engine:
            count = 10
            ids = [(await start(engine, UNREAD, msgspec.json.encode(ONE_MB))).id for _ in range(count)]
            for each in ids:
                await engine.engine.services.executions.wait_for_end(each)

            async def get(self: object, key: str) -> bytes | None:
                read.append(key)
                return None

            sizes = [len(encode_record(await record_of(engine, each))) for each in ids]
            for kind in (SqliteBlobs, PostgresBlobs):
                monkeypatch.setattr(kind, "get", get)
            async with open_reader(backend.settings) as reader:
                return len(await reader.executions(limit=count)), max(sizes)

    listed, size = asyncio.run(go())
    assert (listed, read) == (10, [])
    assert size < 1_000


def test_start_payload_above_its_limit_is_refused_with_the_limit(tmp_path: Path) -> None:
    async def go() -> None:
        async with EmbeddedBackend(tmp_path).open() as engine:
            await start(engine, UNREAD, b'"' + b"x" * LIMITS.payload_bytes + b'"')

    with pytest.raises(InvalidDocumentError, match=f"{LIMITS.payload_bytes:,}"):
        asyncio.run(go())
