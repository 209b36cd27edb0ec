# Generated from async_runs.py by tools/unasync.py; do not edit.
"""Handles of executions.

run = client.start("orders", {"id": 7})
print(run.result())
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rune.client import models
from rune.client.errors import ExecutionFailed

if TYPE_CHECKING:
    from rune.client.client import Client


class Run:
    """An execution on a server. `started` is the response to its start; its fields are properties of the handle."""

    def __init__(self, client: Client, started: models.Started) -> None:
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

    def execution(self) -> models.Execution:
        """Get the execution."""
        return self._client.execution(self.id)

    def wait(self, timeout: float | None = None) -> models.Execution:
        """Wait until the execution has ended, whatever its status. Raise TimeoutError after `timeout` seconds."""
        found = self.started.execution
        if found is not None and found.ended:
            return found
        return self._client.wait(self.id, timeout)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end and return the output. Raise ExecutionFailed unless the execution completed."""
        ended = self.wait(timeout)
        if ended.status != "completed":
            raise ExecutionFailed(ended)
        return self._client.output(self.id)

    def output(self) -> Any:
        """Get the output of the ended execution; None unless it completed."""
        return self._client.output(self.id)

    def watch(self, *, after: int = 0) -> Iterator[models.Event]:
        """Yield the events of the execution until it has ended."""
        yield from self._client.watch(self.id, after=after)

    def nodes(self, *, node: str | None = None, status: str | None = None) -> Iterator[models.NodeRun]:
        """Yield the node runs in the order they ended."""
        yield from self._client.nodes(self.id, node=node, status=status)

    def document(self) -> dict[str, Any]:
        """Get the ended execution with all its node runs as one document."""
        return self._client.document(self.id)

    def explain(self) -> models.Explanation:
        """Get what the execution is waiting for."""
        return self._client.explain(self.id)

    def signal(
        self, name: str, value: Any = None, *, item: str | None = None, key: str | None = None
    ) -> models.SignalResult:
        """Send a signal."""
        return self._client.signal(self.id, name, value, item=item, key=key)

    def cancel(self, reason: str = "") -> models.ActionResult:
        """Cancel the execution."""
        return self._client.cancel(self.id, reason)

    def pause(self) -> models.ActionResult:
        """Pause the execution: running nodes finish, no new ones start."""
        return self._client.pause(self.id)

    def resume(self) -> models.ActionResult:
        """Resume the paused execution."""
        return self._client.resume(self.id)

    def retry(
        self,
        *,
        failed_items: bool = False,
        split: str | None = None,
        item: str | None = None,
        code: str | None = None,
        key: str | None = None,
    ) -> Run:
        """Run the failed nodes again in a new execution; the items as of `Client.retry`."""
        return self._client.retry(
            self.id, failed_items=failed_items, split=split, item=item, code=code, key=key
        )

    def rerun(
        self,
        node: str,
        *,
        item: str | None = None,
        key: str | None = None,
        input: Any = None,
        parameters: dict[str, Any] | None = None,
        version: str | int | None = None,
    ) -> Run:
        """Run a node and all nodes after it again in a new execution, as `Client.rerun` does."""
        return self._client.rerun(
            self.id, node, item=item, key=key, input=input, parameters=parameters, version=version
        )
