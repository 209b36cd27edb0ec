"""What clients ask of the machinery: processes, and the node types that they know."""

from __future__ import annotations

from typing import Any

from rune.client.asking import Asking, AsyncAsking
from rune.client.calls import API, Call
from rune.client.models import Model


class Worker(Model, frozen=True, kw_only=True):
    """A process that takes part."""

    id: str
    host: str
    pid: int
    roles: list[str]
    version: str
    started_at: str
    seen_at: str
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    slots: int = 0
    busy: int = 0
    ready: bool = True


class WorkerList(Model, frozen=True, kw_only=True):
    """All of them."""

    workers: list[Worker]


class NodeTypeList(Model, frozen=True, kw_only=True):
    """All node types, each as a document."""

    nodes: list[dict[str, Any]]


def workers() -> Call[WorkerList]:
    return Call(method="GET", path=f"{API}/workers", answer=WorkerList, repeatable=True)


def node_types() -> Call[NodeTypeList]:
    return Call(method="GET", path=f"{API}/nodes", answer=NodeTypeList, repeatable=True)


class MachineryCalls:
    """The machinery, for the client that waits for one thing at a time."""

    def workers(self: Asking) -> list[Worker]:
        """The processes that were seen of late."""
        found: WorkerList = self._ask(workers())
        return found.workers

    def node_types(self: Asking) -> list[dict[str, Any]]:
        """The node types that the server knows, with the schemas of their parameters."""
        found: NodeTypeList = self._ask(node_types())
        return found.nodes


class AsyncMachineryCalls:
    """The machinery, for the client that waits for many things at once."""

    async def workers(self: AsyncAsking) -> list[Worker]:
        """The processes that were seen of late."""
        found: WorkerList = await self._ask(workers())
        return found.workers

    async def node_types(self: AsyncAsking) -> list[dict[str, Any]]:
        """The node types that the server knows, with the schemas of their parameters."""
        found: NodeTypeList = await self._ask(node_types())
        return found.nodes
