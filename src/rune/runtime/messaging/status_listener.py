"""Consumes the statuses of node runs from RabbitMQ, in the API processes.

The broker distributes the messages among them, so the one that consumes a message is often not the one whose client
follows. It reports over the live channel like a worker.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime

from rune.codec.messages import (
    InvalidMessageError,
    NodeStatusMessage,
    decode_completion,
    decode_statuses,
)
from rune.core.plan.model import Plan
from rune.errors import RuneError
from rune.ports.processes import LiveReport, RunningNode
from rune.runtime.messaging.status_publisher import Key

log = logging.getLogger("rune.live")

STATUS_LIFETIME_S = 3.0
"""How long a status tells that a node runs. The worker itself reports nodes that run longer."""


class StatusListener:
    """Handles the messages that an API process consumes. `on_change` is called when an execution may have changed that
    is `streamed` to a client of this process."""

    def __init__(
        self,
        sender: str,
        plan_of: Callable[[str], Awaitable[Plan]],
        streamed: Collection[str],
        on_change: Callable[[], None],
    ) -> None:
        self.followed: Collection[str] = frozenset()
        self._sender = sender
        self._plan_of = plan_of
        self._streamed = streamed
        self._on_change = on_change
        self._running: dict[str, dict[Key, tuple[float, RunningNode]]] = {}

    async def on_statuses(self, bodies: Sequence[bytes]) -> None:
        if not self.followed:
            return  # they need not even be decoded
        changed = False
        for body in bodies:
            try:
                statuses = decode_statuses(body)
            except InvalidMessageError as error:
                log.info("a status is dropped: %s", error.message)
                continue
            for each in statuses:
                if each.execution_id in self.followed:
                    await self._take(each)
                    changed = changed or each.execution_id in self._streamed
        if changed:
            self._on_change()

    async def on_completion(self, body: bytes) -> None:
        if not self._streamed and not self._running:
            return  # it need not even be decoded
        try:
            execution = decode_completion(body).execution_id
        except InvalidMessageError as error:
            log.info("a completion is dropped: %s", error.message)
            return
        self._running.pop(execution, None)
        if execution in self._streamed:
            self._on_change()

    async def _take(self, status: NodeStatusMessage) -> None:
        try:
            plan = await self._plan_of(status.execution_id)
            since = round(datetime.fromisoformat(status.executed_at).timestamp() * 1000)
        except (RuneError, ValueError):
            return
        key = _key(status, plan)
        if key is None:
            return
        runs = self._running.setdefault(status.execution_id, {})
        if status.status != "running":
            runs.pop(key, None)
            return
        metadata = status.metadata if isinstance(status.metadata, dict) else {}
        worker = str(metadata.get("worker", ""))
        runs[key] = (time.monotonic(), RunningNode(*key, status.attempt, since, worker))

    def report(self, executions: Collection[str]) -> LiveReport:
        """Return the nodes that began lately and have not ended."""
        oldest = time.monotonic() - STATUS_LIFETIME_S
        for gone in self._running.keys() - set(executions):
            del self._running[gone]
        for runs in self._running.values():
            for key in [key for key, (at, _) in runs.items() if at < oldest]:
                del runs[key]
        return LiveReport(
            self._sender,
            {each: [node for _, node in self._running.get(each, {}).values()] for each in executions},
        )


def _key(status: NodeStatusMessage, plan: Plan) -> Key | None:
    """Return node and path of a status; None if the plan has no such node."""
    node = plan.index.get(status.node_id)
    path: list[int] = []
    for frame in status.lineage:
        split = plan.index.get(frame.split_node_id)
        if split is None:
            return None
        path += (split, frame.item_index)
    return None if node is None else (node, tuple(path))
