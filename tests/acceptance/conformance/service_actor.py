"""An actor that calls the services of an engine in this process."""

from __future__ import annotations

import json
import pathlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec

from rune.bootstrap import open_reader, running_engine
from rune.core.definition.model import canonical
from rune.errors import InvalidDocumentError, RuneError
from rune.runtime.engine import Engine
from rune.runtime.lifecycle.launcher import StartOptions
from rune.settings import Settings
from rune.testing.harness import compiled
from tests.acceptance.conformance.actor import ExecutionView, RejectedError, Start


@contextmanager
def rejections() -> Iterator[None]:
    """Raise errors of the engine as RejectedError."""
    try:
        yield
    except InvalidDocumentError as invalid:
        first: Any = invalid.problems[0]
        raise RejectedError(first.code, invalid.message) from invalid
    except RuneError as error:
        raise RejectedError(error.code, error.message) from error


class ServiceActor(ExecutionView):
    def __init__(self, engine: Engine, reader: Any) -> None:
        super().__init__(reader)
        self._engine = engine
        self._services = engine.services

    async def waiting(self, execution: str) -> list[dict[str, Any]]:
        """A fact is recorded before it is applied: a node counts as waiting if the state has it as well."""
        recorded = await super().waiting(execution)
        applied = msgspec.to_builtins(await self._engine.backend.state.explain(execution))
        return [each for each in recorded if each in applied]

    def _canonical(self, source: str) -> bytes:
        return canonical(compiled(json.loads(source), self._engine.registry).definition)

    async def deploy(self, source: str, alias: str | None) -> int:
        with rejections():
            return (await self._services.workflows.deploy(self._canonical(source), alias=alias)).number

    async def alias(self, workflow: str, alias: str, version: int) -> int:
        with rejections():
            return (await self._services.workflows.set_alias(workflow, alias, version)).number

    async def start(self, wanted: Start) -> str:
        options = StartOptions(key=wanted.key, labels=wanted.labels, fake_time=wanted.fake_time)
        payload = wanted.input.encode()
        with rejections():
            if wanted.workflow is None:
                return (
                    await self._services.executions.start_definition(
                        self._canonical(wanted.source), payload, options
                    )
                ).id
            name, _, which = wanted.workflow.partition("@")
            started = await self._services.executions.start(
                name, which or None, payload, options, priority=wanted.priority
            )
            return started.id

    async def signal(
        self, execution: str, name: str, value: str, *, key: str | None, item: str | None
    ) -> bool:
        with rejections():
            return (
                await self._services.executions.signal(execution, name, value.encode(), key=key, item=item)
            ).resumed

    async def pause(self, execution: str) -> bool:
        with rejections():
            return await self._services.executions.pause(execution)

    async def resume(self, execution: str) -> bool:
        with rejections():
            return await self._services.executions.resume(execution)

    async def cancel(self, execution: str, reason: str) -> str:
        with rejections():
            return await self._services.executions.cancel(execution, reason)

    async def retry(self, execution: str, *, failed_items: bool, key: str | None) -> str:
        with rejections():
            return (await self._services.executions.retry(execution, failed_items=failed_items, key=key)).id

    async def rerun(self, execution: str, node: str, *, item: str | None, key: str | None) -> str:
        with rejections():
            return (await self._services.executions.rerun(execution, node, item=item, key=key)).id


@asynccontextmanager
async def open_actor(home: pathlib.Path, **settings: Any) -> AsyncIterator[ServiceActor]:
    """Run an engine in this process and yield an actor that calls its services."""
    made = Settings(home=str(home), **settings)
    async with running_engine(made) as engine, open_reader(made) as reader:
        yield ServiceActor(engine, reader)
