"""Handles of executions.

run = await client.start("orders", {"id": 7})
print(await run.result())
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from rune.client import models
from rune.client.errors import ExecutionFailed

if TYPE_CHECKING:
    from rune.client.async_client import AsyncClient


class AsyncRun:
    """An execution on a server. `started` is the response to its start; its fields are properties of the handle."""

    def __init__(self, client: AsyncClient, started: models.Started) -> None:
        self._client = client
        self.started = started

    @property
    def id(self) -> str:
        return self.started.execution_id

    @property
    def execution_id(self) -> str:
        return self.started.execution_id

    @property
    def workflow_id(self) -> str:
        return self.started.workflow_id

    @property
    def hash(self) -> str:
        """The hash of the definition."""
        return self.started.hash

    @property
    def version(self) -> int | None:
        return self.started.version

    @property
    def alias(self) -> str | None:
        return self.started.alias

    @property
    def started_at(self) -> str:
        return self.started.started_at

    @property
    def retry_of(self) -> str | None:
        """The execution that this one repeats."""
        return self.started.retry_of

    @property
    def replayed(self) -> bool:
        """Whether an earlier request with the same idempotency key started it."""
        return self.started.replayed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.workflow_id}>"

    async def execution(self) -> models.Execution:
        """Get the execution."""
        return await self._client.execution(self.id)

    async def wait(self, timeout: float | None = None) -> models.Execution:
        """Wait until the execution has ended, whatever its status. Raise TimeoutError after `timeout` seconds."""
        found = self.started.execution
        if found is not None and found.ended:
            return found
        return await self._client.wait(self.id, timeout)

    async def result(self, timeout: float | None = None) -> Any:
        """Wait for the end and return the output. Raise ExecutionFailed unless the execution completed."""
        ended = await self.wait(timeout)
        if ended.status != "completed":
            raise ExecutionFailed(ended)
        return await self._client.output(self.id)

    async def output(self) -> Any:
        """Get the output of the ended execution; None unless it completed."""
        return await self._client.output(self.id)

    async def watch(self, *, after: int = 0) -> AsyncIterator[models.Event]:
        """Yield the events of the execution until it has ended."""
        async for event in self._client.watch(self.id, after=after):
            yield event

    async def nodes(
        self, *, node: str | None = None, status: str | None = None
    ) -> AsyncIterator[models.NodeRun]:
        """Yield the node runs in the order they ended."""
        async for run in self._client.nodes(self.id, node=node, status=status):
            yield run

    async def document(self) -> dict[str, Any]:
        """Get the ended execution with all its node runs as one document."""
        return await self._client.document(self.id)

    async def explain(self) -> models.Explanation:
        """Get what the execution is waiting for."""
        return await self._client.explain(self.id)

    async def signal(
        self, name: str, value: Any = None, *, item: str | None = None, key: str | None = None
    ) -> models.SignalResult:
        """Send a signal."""
        return await self._client.signal(self.id, name, value, item=item, key=key)

    async def cancel(self, reason: str = "") -> models.ActionResult:
        """Cancel the execution."""
        return await self._client.cancel(self.id, reason)

    async def pause(self) -> models.ActionResult:
        """Pause the execution: running nodes finish, no new ones start."""
        return await self._client.pause(self.id)

    async def resume(self) -> models.ActionResult:
        """Resume the paused execution."""
        return await self._client.resume(self.id)

    async def retry(
        self,
        *,
        failed_items: bool = False,
        split: str | None = None,
        item: str | None = None,
        code: str | None = None,
        key: str | None = None,
    ) -> AsyncRun:
        """Run the failed nodes again in a new execution; the items as of `Client.retry`."""
        return await self._client.retry(
            self.id, failed_items=failed_items, split=split, item=item, code=code, key=key
        )

    async def rerun(
        self,
        node: str,
        *,
        item: str | None = None,
        key: str | None = None,
        input: Any = None,
        parameters: dict[str, Any] | None = None,
        version: str | int | None = None,
    ) -> AsyncRun:
        """Run a node and all nodes after it again in a new execution, as `AsyncClient.rerun` does."""
        return await self._client.rerun(
            self.id, node, item=item, key=key, input=input, parameters=parameters, version=version
        )
