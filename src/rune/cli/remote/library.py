"""The library of a server elsewhere."""

from __future__ import annotations

from rune.cli.remote.asking import epoch
from rune.client import AsyncClient, Refusal
from rune.ports.library import Alias, Entry, Version


class RemoteLibrary:
    """Stored definitions, to be looked at."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def versions(self, workflow: str) -> list[Version]:
        """Every version, the oldest first; none of a workflow that nobody knows."""
        try:
            return [
                Version(workflow, each.version, each.hash, epoch(each.deployed_at), tuple(each.aliases))
                async for each in self._client.versions(workflow, page=1_000)
            ]
        except Refusal as refused:
            if refused.status != 404:
                raise
            return []

    async def aliases(self, workflow: str) -> list[Alias]:
        """Every alias by name; none of a workflow that nobody knows."""
        try:
            found = await self._client.aliases(workflow)
        except Refusal as refused:
            if refused.status != 404:
                raise
            return []
        return [Alias(each.alias, each.version, each.revision, each.weights) for each in found]

    async def entries(self, *, hidden: bool = False) -> list[Entry]:
        """The workflows by name; `hidden`: those out of sight too."""
        return [
            Entry(
                workflow=each.workflow_id,
                name=each.name,
                latest=each.latest,
                versions=each.versions,
                aliases=each.aliases,
                deployed_at=epoch(each.deployed_at),
                hidden=each.hidden,
            )
            async for each in self._client.workflows(hidden=hidden, page=1_000)
        ]
