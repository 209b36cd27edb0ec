"""The client, for programs that wait for many things at once.

async with AsyncClient("http://127.0.0.1:8080") as client:
    started = await client.start("hello", {"name": "World"})
    async for event in client.watch(started.execution_id):
        print(event.number, event.kind, event.node_id)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from rune.client import calls, models
from rune.client.calls import Call
from rune.client.errors import ApiError, ClientError, ConnectionFailedError, api_error, connection_failed
from rune.client.resources import (
    AsyncCredentialCalls,
    AsyncLimitCalls,
    AsyncSystemCalls,
    AsyncTriggerCalls,
)
from rune.client.sse import SseDecoder

T = TypeVar("T")
P = TypeVar("P", bound=models.Page)
TRIES = 4
PAUSE = 0.2  # s before the second try; doubled with each
LONG_POLL = 30.0  # s


class AsyncClient(AsyncTriggerCalls, AsyncLimitCalls, AsyncCredentialCalls, AsyncSystemCalls):
    """Talks to a server. `key` is what it asks for, if it does. What fails on the way is asked again where that is
    safe: starts and signals carry a key of their own for it. Who watches waits `patience` seconds
    for a server that went to come back."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        key: str | None = None,
        timeout: float = 30.0,
        patience: float = 20.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._timeout = timeout
        self._patience = patience
        self._http = httpx.AsyncClient(
            base_url=url, headers=headers, timeout=timeout, transport=transport, trust_env=False
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.aclose()

    async def _ask(self, call: Call[T]) -> T:
        tries = TRIES if call.repeatable else 1
        for number in range(tries):
            if number:
                await asyncio.sleep(PAUSE * 2 ** (number - 1))
            try:
                response = await self._send(call)
            except httpx.TransportError as error:
                failure: ClientError = connection_failed(self._http.base_url, error)
                continue
            if response.is_success:
                return call.read(response.content)
            failure = api_error(response.status_code, response.content)
            if response.status_code != 503:
                break
        raise failure

    async def _send(self, call: Call[T]) -> httpx.Response:
        headers = {"Content-Type": "application/json"} if call.body is not None else {}
        return await self._http.request(
            call.method,
            call.path,
            params=call.params,
            content=call.body,
            headers={**headers, **call.headers},
            timeout=self._timeout + call.patience,
        )

    async def _pages(
        self, call: Callable[[str | None], Call[P]], cursor: str | None = None
    ) -> AsyncIterator[P]:
        """One page after the other, as many as are taken."""
        while True:
            found = await self._ask(call(cursor))
            yield found
            cursor = found.next
            if cursor is None:
                return

    async def start(
        self,
        workflow: str,
        input: Any = None,
        *,
        version: str | int | None = None,
        key: str | None = None,
        labels: dict[str, str] | None = None,
        priority: int | None = None,
        fake_time: bool = False,
    ) -> models.Started:
        """Start a stored workflow; durable when this returns. `version` is a number or an alias."""
        call = calls.start(
            workflow, input, version=version, key=key, labels=labels, priority=priority, fake_time=fake_time
        )
        return await self._ask(call)

    async def run(
        self,
        definition: dict[str, Any],
        input: Any = None,
        *,
        key: str | None = None,
        labels: dict[str, str] | None = None,
        fake_time: bool = False,
    ) -> models.Started:
        """Start a definition that is stored nowhere."""
        return await self._ask(
            calls.start(None, input, definition=definition, key=key, labels=labels, fake_time=fake_time)
        )

    async def wait(self, execution: str, seconds: float | None = None) -> models.Execution:
        """Until it has ended, however it did; TimeoutError where that takes longer than `seconds`."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = LONG_POLL if deadline is None else min(LONG_POLL, deadline - time.monotonic())
            found = await self._ask(calls.execution(execution, max(left, 0.0)))
            if found.ended:
                return found
            if left <= 0:
                raise TimeoutError(f"{execution} has not ended within {seconds} s")

    async def watch(self, execution: str, *, after: int = 0) -> AsyncIterator[models.Event]:
        """Its events until it has ended, each once and none left out, however often the connection is lost."""
        lines = SseDecoder(after)
        lost: float | None = None
        while not lines.ended:
            try:
                async with self._http.stream(
                    "GET", calls.events_path(execution), headers=lines.headers, timeout=httpx.Timeout(60.0)
                ) as response:
                    if response.status_code == 204:
                        return
                    if not response.is_success:
                        raise api_error(response.status_code, await response.aread())
                    lost = None
                    async for line in response.aiter_lines():
                        event = lines.take(line)
                        if event is not None:
                            yield event
            except httpx.TransportError as error:
                failure: ClientError = connection_failed(self._http.base_url, error)
            except ApiError as refused:
                if refused.status != 503:
                    raise
                failure = refused
            else:
                failure = ConnectionFailedError("the stream ended before the execution did")
            lines.broken()
            lost = time.monotonic() if lost is None else lost
            if time.monotonic() - lost > self._patience and not lines.ended:
                raise failure
            if not lines.ended:
                await asyncio.sleep(PAUSE)

    async def execution(self, execution: str) -> models.Execution:
        """One execution."""
        return await self._ask(calls.execution(execution))

    async def executions(
        self,
        *,
        status: str | None = None,
        workflow: str | None = None,
        labels: dict[str, str] | None = None,
        q: str | None = None,
        after: str | None = None,
        page: int = 100,
    ) -> AsyncIterator[models.Execution]:
        """Executions, newest first, behind a given one, as many as are taken."""
        async for found in self._pages(
            lambda cursor: calls.executions(status, workflow, labels, q, page, cursor), after
        ):
            for each in found.executions:
                yield each

    async def nodes(
        self,
        execution: str,
        *,
        node: str | None = None,
        status: str | None = None,
        lineage: str | None = None,
        page: int = 200,
    ) -> AsyncIterator[models.NodeRun]:
        """What became of its nodes, in the order they ended."""
        async for found in self._pages(
            lambda cursor: calls.nodes(execution, node, status, lineage, page, cursor)
        ):
            for each in found.nodes:
                yield each

    async def output(self, execution: str) -> Any:
        """What it came to; None unless it has completed."""
        return await self._ask(calls.output(execution))

    async def document(self, execution: str) -> dict[str, Any]:
        """All of it in one document."""
        return await self._ask(calls.document(execution))

    async def explain(self, execution: str) -> models.Explanation:
        """Why it is where it is."""
        return await self._ask(calls.explain(execution))

    async def signal(
        self,
        execution: str,
        name: str,
        value: Any = None,
        *,
        item: str | None = None,
        key: str | None = None,
    ) -> models.SignalResult:
        """Tell it something; under a key once."""
        return await self._ask(calls.signal(execution, name, value, item, key))

    async def cancel(self, execution: str, reason: str = "") -> models.ActionResult:
        """End it as cancelled."""
        return await self._ask(calls.cancel(execution, reason))

    async def pause(self, execution: str) -> models.ActionResult:
        """Let nothing more of it begin."""
        return await self._ask(calls.control(execution, "pause"))

    async def resume(self, execution: str) -> models.ActionResult:
        """Let it go on."""
        return await self._ask(calls.control(execution, "resume"))

    async def retry(
        self, execution: str, *, failed_items: bool = False, key: str | None = None
    ) -> models.Started:
        """Run again what failed, in a new execution."""
        return await self._ask(calls.retry(execution, failed_items, key))

    async def rerun(
        self, execution: str, node: str, *, item: str | None = None, key: str | None = None
    ) -> models.Started:
        """Run a node and everything behind it again, in a new execution."""
        return await self._ask(calls.rerun(execution, node, item, key))

    async def deploy(
        self, definition: dict[str, Any] | str, *, workflow: str | None = None, match: str | None = None
    ) -> models.Deployed:
        """Store a definition (plain data, or YAML text): a new workflow, or the next version of the one that is named.
        `match`: only if this is still the hash of the latest."""
        if workflow is None and isinstance(definition, dict) and "id" in definition:
            workflow = str(definition["id"])
        return await self._ask(calls.deploy(definition, workflow, match))

    async def check(self, definition: dict[str, Any] | str) -> models.Checked:
        """Find out what is wrong with a definition, without storing it."""
        return await self._ask(calls.check(definition))

    async def workflows(self, *, hidden: bool = False, page: int = 200) -> AsyncIterator[models.Workflow]:
        """The stored workflows by id."""
        async for found in self._pages(lambda cursor: calls.workflows(hidden, page, cursor)):
            for each in found.workflows:
                yield each

    async def workflow(self, workflow: str, version: str | int | None = None) -> models.WorkflowVersion:
        """A version of a workflow with its definition."""
        return await self._ask(calls.workflow(workflow, version))

    async def versions(self, workflow: str, *, page: int = 200) -> AsyncIterator[models.Version]:
        """Its versions, the oldest first."""
        async for found in self._pages(lambda cursor: calls.versions(workflow, page, cursor)):
            for each in found.versions:
                yield each

    async def point(
        self,
        workflow: str,
        alias: str,
        version: int | None = None,
        *,
        weights: dict[int, float] | None = None,
        match: int | None = None,
    ) -> models.Alias:
        """Let an alias point at a version; with weights so many percent of the starts go to others. `match`: only if
        this is still its revision."""
        return await self._ask(calls.point(workflow, alias, version, weights, match))

    async def aliases(self, workflow: str) -> list[models.Alias]:
        """Its aliases by name."""
        return (await self._ask(calls.aliases(workflow))).aliases

    async def delete(self, workflow: str) -> None:
        """Take a workflow out of sight."""
        await self._ask(calls.delete_workflow(workflow))

    async def definition(self, hash: str) -> dict[str, Any]:
        """A definition by its hash."""
        return await self._ask(calls.definition(hash))

    async def dead_letters(
        self, *, after: str | None = None, page: int = 200
    ) -> AsyncIterator[models.DeadLetter]:
        """Executions that the engine gave up on, newest first, behind a given one."""
        async for found in self._pages(lambda cursor: calls.dead_letters(page, cursor), after):
            for each in found.dead_letters:
                yield each

    async def requeue(self, letter: str) -> models.Started:
        """Try again what the engine gave up on."""
        return await self._ask(calls.requeue(letter))

    async def drop(self, letter: str) -> None:
        """Take a dead letter off the list."""
        await self._ask(calls.drop(letter))

    async def keys(self) -> list[models.ApiKey]:
        """The keys of the API, without their secrets."""
        return (await self._ask(calls.keys())).keys

    async def create_key(
        self,
        name: str,
        role: str,
        *,
        workflows: list[str] | None = None,
        expires_in: int | None = None,
        limits: models.Limits | None = None,
    ) -> models.NewApiKey:
        """Make a key for some workflows, or all; it ends after so many seconds. Its secret is told this once."""
        return await self._ask(calls.create_key(name, role, workflows or [], expires_in, limits))

    async def revoke_key(self, id: str) -> None:
        """Let a key open nothing any more."""
        await self._ask(calls.revoke_key(id))

    async def log(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        target: str | None = None,
        page: int = 200,
    ) -> AsyncIterator[models.LogEntry]:
        """Who changed what, newest first."""
        async for found in self._pages(lambda cursor: calls.log(actor, action, target, page, cursor)):
            for each in found.entries:
                yield each

    async def version(self) -> models.ServerVersion:
        """What runs on the other side."""
        return await self._ask(calls.server_version())
