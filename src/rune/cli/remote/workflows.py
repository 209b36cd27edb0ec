"""Deployed workflows of a server."""

from __future__ import annotations

from typing import Any

import msgspec

from rune.cli.remote.connection import RemoteService, epoch
from rune.client import ApiError, AsyncClient, models
from rune.core.definition.model import canonical
from rune.core.definition.problems import UNKNOWN_CHILD, Problem
from rune.core.json_decoder import read_json
from rune.core.validation.validate import ValidationResult
from rune.documents.loader import locate
from rune.ports.workflows import (
    JSON_TYPE,
    YAML_TYPE,
    Alias,
    DeployedVersion,
    Version,
    VersionSource,
    WorkflowEntry,
)

PAGE_SIZE = 1_000


class RemoteWorkflows:
    """Read-only access to deployed workflows."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def versions(self, workflow: str) -> list[Version]:
        """Return all versions, oldest first; none for an unknown workflow."""
        try:
            return [
                version_of(workflow, view) async for view in self._client.versions(workflow, page=PAGE_SIZE)
            ]
        except ApiError as refused:
            if refused.status != 404:
                raise
            return []

    async def source(self, workflow: str, number: int) -> VersionSource | None:
        """Return the text of a version; the media type is that of its first character."""
        try:
            data = await self._client.source(workflow, number)
        except ApiError as refused:
            if refused.code != "NO_SOURCE":
                raise
            return None
        return VersionSource(data, JSON_TYPE if data.lstrip()[:1] == b"{" else YAML_TYPE)

    async def aliases(self, workflow: str) -> list[Alias]:
        """Return all aliases by name; none for an unknown workflow."""
        try:
            found = await self._client.aliases(workflow)
        except ApiError as refused:
            if refused.status != 404:
                raise
            return []
        return [Alias(each.alias, each.version, each.revision, each.weights) for each in found]

    async def list(self, *, hidden: bool = False) -> list[WorkflowEntry]:
        """Return the workflows by name; `hidden` includes archived ones."""
        return [
            WorkflowEntry(
                workflow=each.workflow_id,
                name=each.name,
                latest=each.latest,
                versions=each.versions,
                aliases=each.aliases,
                deployed_at=epoch(each.deployed_at),
                hidden=each.hidden,
            )
            async for each in self._client.workflows(hidden=hidden, page=PAGE_SIZE)
        ]


class RemoteWorkflowService(RemoteService):
    """The workflow service of a server."""

    async def undeployed_children(self, document: ValidationResult) -> tuple[Problem, ...]:
        """Return a warning for each child of a document that the server lacks."""
        assert document.definition is not None
        checked = await self._client.check(canonical(document.definition).decode())
        found = tuple(each for each in checked.problems if each.code == UNKNOWN_CHILD)
        return tuple(locate(found, document.source))

    async def deploy(
        self,
        definition: bytes,
        *,
        alias: str | None = None,
        source: VersionSource | None = None,
        note: str = "",
    ) -> Version:
        """Deploy the text that the definition was read from, which the server keeps."""
        name = read_json(definition)["id"]
        sent = source or VersionSource(definition, JSON_TYPE)
        deployed = await self._client.deploy(
            sent.data, workflow=name, alias=alias, note=note or None, media_type=sent.media_type
        )
        version = version_of(name, deployed, deployed.change)
        return DeployedVersion(**msgspec.structs.asdict(version), problems=tuple(deployed.problems))

    async def set_alias(
        self,
        workflow: str,
        alias: str,
        version: int | None,
        *,
        weights: dict[int, float] | None = None,
    ) -> Version:
        pointed = await self._client.set_alias(workflow, alias, version, weights=weights)
        # An older server answers without the version.
        target = pointed.target or await self._client.workflow(workflow, pointed.version)
        return version_of(workflow, target, pointed.change)

    async def archive(self, workflow: str) -> bool:
        return (await self._client.delete(workflow)).changed


def version_of(workflow: str, view: models.Version, change: Any = "none") -> Version:
    return Version(
        workflow,
        view.version,
        view.hash,
        epoch(view.deployed_at),
        tuple(view.aliases),
        change,
        principal=view.principal,
        note=view.note,
    )
