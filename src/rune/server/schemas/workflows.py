"""Deployed workflows and their versions as the API shows them."""

from __future__ import annotations

from typing import Any

from rune.api.workflows import (
    Deployed,
    VersionView,
    WorkflowActivity,
    WorkflowDetail,
    WorkflowView,
)
from rune.core.definition.problems import Problem
from rune.ports.clock import moment
from rune.ports.workflows import Version, WorkflowEntry


def version_view(version: Version) -> VersionView:
    return VersionView(**_version(version))


def deployed(version: Version, problems: list[Problem]) -> Deployed:
    return Deployed(
        **_version(version), workflow_id=version.workflow, change=version.change, problems=problems
    )


def workflow_detail(version: Version, definition: dict[str, Any]) -> WorkflowDetail:
    return WorkflowDetail(
        **_version(version),
        workflow_id=version.workflow,
        name=definition.get("name", ""),
        definition=definition,
    )


def _version(version: Version) -> dict[str, Any]:
    return {
        "version": version.number,
        "hash": version.hash,
        "deployed_at": moment(version.at),
        "aliases": list(version.aliases),
        "principal": version.principal,
        "note": version.note,
    }


def workflow_view(entry: WorkflowEntry, activity: WorkflowActivity | None = None) -> WorkflowView:
    return WorkflowView(
        workflow_id=entry.workflow,
        name=entry.name,
        latest=entry.latest,
        versions=entry.versions,
        aliases=entry.aliases,
        deployed_at=moment(entry.deployed_at),
        hidden=entry.hidden,
        activity=activity,
    )
