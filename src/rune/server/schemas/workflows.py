"""Deployed workflows and their versions as the API shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rune.core.definition.problems import Problem
from rune.ports.workflows import Version, WorkflowEntry

if TYPE_CHECKING:
    pass
from rune.server.schemas.base import View, moment


class VersionView(View, frozen=True, kw_only=True):
    """A version of a workflow. `principal` has deployed it first; null in versions of older servers."""

    version: int
    hash: str
    deployed_at: str
    aliases: list[str]
    principal: str | None
    note: str


class Deployed(VersionView, frozen=True, kw_only=True):
    """The result of a deployment: a new version, or an existing one with the same content."""

    workflow_id: str
    change: str
    problems: list[Problem]


class OutcomeView(View, frozen=True, kw_only=True):
    """One of the newest executions of a workflow."""

    execution_id: str
    status: str
    started_at: str
    total_duration_ms: int | None


class WorkflowActivity(View, frozen=True, kw_only=True):
    """The newest executions of a workflow, newest first, and quantiles of the durations of the `measured` ones that
    ended last; null if none has."""

    outcomes: list[OutcomeView]
    measured: int
    p50_ms: int | None
    p95_ms: int | None


class WorkflowView(View, frozen=True, kw_only=True):
    """A deployed workflow in a list. `activity` is null unless the request asks for it."""

    workflow_id: str
    name: str
    latest: int
    versions: int
    aliases: dict[str, int]
    deployed_at: str
    hidden: bool
    activity: WorkflowActivity | None


class WorkflowPage(View, frozen=True, kw_only=True):
    """A page of workflows, ordered by id."""

    workflows: list[WorkflowView]
    next: str | None


class VersionPage(View, frozen=True, kw_only=True):
    """A page of versions, oldest first."""

    versions: list[VersionView]
    next: str | None


class WorkflowDetail(VersionView, frozen=True, kw_only=True):
    """A version of a workflow with its definition."""

    workflow_id: str
    name: str
    definition: dict[str, Any]


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
