"""A request that is repeated under its idempotency key is recognised by its value, however the payload is written."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from rune.ports.journal import ExecutionRecord, IdempotencyConflictError
from rune.runtime.lifecycle.launcher import StartOptions
from rune.testing.harness import Harness
from tests.support.backends import Backend, backends
from tests.support.workflows import edit, of_type, workflow

both = backends("embedded", "redis")
DOCUMENT = workflow("start>n", n=edit(x=1))
WAITS = workflow("start>w", w=of_type("wait", resume="signal", name="go"))
SAME = (
    (b'{"v":19.90}', b'{"v": 19.90}'),
    (b'{"v":19.90}', b'{"v":19.9}'),
    (b'{"v":1}', b'{"v":1.0}'),
    (b'{"v":100}', b'{"v":1e2}'),
    (b'{"a":1,"b":{"c":2,"d":3}}', b'{"b":{"d":3,"c":2},"a":1}'),
    (b'{"v":"\\u00e4\\/"}', '{"v":"ä/"}'.encode()),
    (b'{"v":0}', b'{"v":-0.0}'),
)
OTHER = (
    (b'{"v":1}', b'{"v":"1"}'),
    (b'{"v":1}', b'{"v":true}'),
    (b'{"v":0}', b'{"v":null}'),
    (b'{"v":0}', b'{"v":[]}'),
    (b'{"v":[1,2]}', b'{"v":[2,1]}'),
    (b'{"v":9007199254740993}', b'{"v":9007199254740992.0}'),
    (b'{"a":1}', b'{"a":1,"b":null}'),
)
ROWS = [{"id": each, "price": 19.5, "name": f"row {each}"} for each in range(9_000)]


async def start(engine: Harness, payload: bytes, key: str, document: Any = DOCUMENT) -> ExecutionRecord:
    return await engine.engine.services.executions.start_definition(
        msgspec.json.encode(document), payload, StartOptions(key=key)
    )


@both
def test_repeated_start_is_recognised_by_the_value_of_its_payload(backend: Backend) -> None:
    async def go() -> None:
        async with backend.open() as engine:
            for number, (first, again) in enumerate(SAME):
                started = await start(engine, first, f"same{number}")
                assert (await start(engine, again, f"same{number}")).id == started.id, (first, again)
            for number, (first, again) in enumerate(OTHER):
                await start(engine, first, f"other{number}")
                with pytest.raises(IdempotencyConflictError):
                    await start(engine, again, f"other{number}")

    asyncio.run(go())


@both
def test_repeated_large_start_is_recognised_by_its_value(backend: Backend) -> None:
    compact = msgspec.json.encode({"rows": ROWS, "n": 1})
    spaced = msgspec.json.format(msgspec.json.encode({"n": 1.0, "rows": ROWS}), indent=1)
    other = msgspec.json.encode({"n": 2, "rows": ROWS})

    async def go() -> None:
        async with backend.open() as engine:
            first = await start(engine, compact, "k")
            assert (await start(engine, spaced, "k")).id == first.id
            with pytest.raises(IdempotencyConflictError):
                await start(engine, other, "k")
            small = await start(engine, b'{"n":1}', "small")
            padded = b'{"n":' + b" " * 100_000 + b"1}"
            assert (await start(engine, padded, "small")).id == small.id

    asyncio.run(go())


@both
def test_repeated_start_under_a_fixed_id_is_recognised_by_its_value(backend: Backend) -> None:
    async def go() -> None:
        async with backend.open() as engine:
            service, document = engine.engine.services.executions, msgspec.json.encode(DOCUMENT)
            for number, (first, again) in enumerate(SAME):
                id = f"mine{number}"
                await service.start_definition(document, first, execution=id)
                assert (await service.start_definition(document, again, execution=id)).id == id
            with pytest.raises(IdempotencyConflictError):
                await service.start_definition(document, b'{"v":7}', execution="mine0")

    asyncio.run(go())


@both
def test_repeated_signal_is_recognised_by_its_value(backend: Backend) -> None:
    large = msgspec.json.encode({"rows": ROWS})
    pairs = (*SAME, (large, msgspec.json.format(large, indent=1)))

    async def go() -> None:
        async with backend.open() as engine:
            service = engine.engine.services.executions
            for first, again in pairs:
                run = await engine.start(WAITS)
                await service.pause(run.id)  # signals of an execution that has ended are refused
                sent = await service.signal(run.id, "go", first, key="k")
                assert (await service.signal(run.id, "go", again, key="k")).id == sent.id
                with pytest.raises(IdempotencyConflictError):
                    await service.signal(run.id, "go", b'{"v":"other"}', key="k")

    asyncio.run(go())


@both
def test_repeated_start_through_an_alias_is_recognised_after_a_deployment(backend: Backend) -> None:
    async def go() -> None:
        async with backend.open() as engine:
            services = engine.engine.services
            deploy, key = services.workflows.deploy, StartOptions(key="k")
            await deploy(msgspec.json.encode({**DOCUMENT, "id": "w"}))
            first = await services.executions.start("w", None, b'{"v":1}', key)
            await deploy(msgspec.json.encode({**workflow("start>n", n=edit(x=2)), "id": "w"}))
            again = await services.executions.start("w", None, b'{"v":1}', key)
            assert (again.id, again.version) == (first.id, 1)
            for which, payload in ((None, b'{"v":2}'), ("2", b'{"v":1}')):
                with pytest.raises(IdempotencyConflictError):
                    await services.executions.start("w", which, payload, key)

    asyncio.run(go())
