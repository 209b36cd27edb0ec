"""Starts with a fixed execution id or a priority."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from rune.bootstrap import running_engine
from rune.errors import RuneError
from rune.runtime.components import Services
from rune.settings import Settings

WAITS = {
    "id": "waits",
    "nodes": [
        {"id": "start", "type": "manual"},
        {"id": "wait", "type": "wait", "parameters": {"resume": "signal", "name": "go"}},
    ],
    "edges": [{"src": "start", "dst": "wait"}],
}
DOCUMENT = json.dumps(WAITS).encode()


async def error_code(call: object) -> str:
    with pytest.raises(RuneError) as error:
        await call  # type: ignore[misc]
    return error.value.code


async def _start_twice(services: Services) -> None:
    first = await services.executions.start_definition(DOCUMENT, b'{"a": 1}', execution="mine")
    again = await services.executions.start_definition(DOCUMENT, b'{"a": 1}', execution="mine")
    assert first.id == again.id == "mine"
    assert (
        await error_code(services.executions.start_definition(DOCUMENT, b'{"a": 2}', execution="mine"))
        == "KEY_CONFLICT"
    )


async def _start_concurrently(services: Services) -> None:
    both = (
        services.executions.start_definition(DOCUMENT, body, execution="race")
        for body in (b'{"a": 1}', b'{"a": 2}')
    )
    answers = await asyncio.gather(*both, return_exceptions=True)
    codes = [getattr(each, "code", "accepted") for each in answers]
    assert sorted(codes) == ["KEY_CONFLICT", "accepted"]


async def _priority(services: Services) -> None:
    await services.workflows.deploy(DOCUMENT)
    assert await error_code(services.executions.start("waits", None, b"{}", priority=11)) == "BAD_PRIORITY"
    assert await error_code(services.executions.start("waits", None, b"{}", priority=-1)) == "BAD_PRIORITY"
    assert (await services.executions.start("waits", None, b"{}", priority=10)).priority == 10


@pytest.mark.parametrize("scenario", [_start_twice, _start_concurrently, _priority])
def test_starts_are_idempotent_and_validated(scenario: object, tmp_path: Path) -> None:
    async def run() -> None:
        async with running_engine(Settings(home=str(tmp_path))) as engine:
            await scenario(engine.services)  # type: ignore[operator]

    asyncio.run(run())
