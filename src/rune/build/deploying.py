"""Store a workflow on a server, after asking whether its workers have every node type."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rune.errors import RuneError

if TYPE_CHECKING:
    from rune.build.flow import Workflow


class UnknownTypesError(RuneError):
    """A workflow uses node types that no worker of the server has. `types` lists them."""

    code = "UNKNOWN_TYPE"

    def __init__(self, types: list[str], reason: str) -> None:
        super().__init__(f"{', '.join(f'`{each}`' for each in types)}: {reason}")
        self.types = types


def deploy(flow: Workflow, client: Any) -> Any:
    """Store a workflow as its next version, through a client of either kind; with AsyncClient, await the result."""
    local = [flow[each].type for each in flow.local_tasks if each in flow]
    if local:
        raise UnknownTypesError(local, "workers cannot import this function; move it to a module")
    if inspect.iscoroutinefunction(client.deploy):
        return _deploy_async(flow, client)
    _check_types(flow, client.node_types())
    return client.deploy(flow.to_dict(), workflow=flow.id)


async def _deploy_async(flow: Workflow, client: Any) -> Any:
    _check_types(flow, await client.node_types())
    return await client.deploy(flow.to_dict(), workflow=flow.id)


def _check_types(flow: Workflow, known: Iterable[Mapping[str, Any]]) -> None:
    names = {name for each in known for name in (each["type"], *each["aliases"])}
    missing = sorted({each.type for each in flow.nodes} - names)
    if missing:
        raise UnknownTypesError(missing, "no worker of the server has this node type; start one with --nodes")
