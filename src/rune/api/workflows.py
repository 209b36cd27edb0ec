"""Deployed workflows with their versions and aliases, and checked documents."""

from __future__ import annotations

from typing import Any

from rune.api.base import View, absent
from rune.api.definitions import LayoutView
from rune.core.definition.problems import Problem


class VersionView(View, frozen=True, kw_only=True):
    """A version of a workflow. `principal` has deployed it first; null in versions of older servers."""

    version: int
    hash: str
    deployed_at: str
    aliases: list[str] = absent([])
    principal: str | None = absent(None)
    note: str = absent("")


class Deployed(VersionView, frozen=True, kw_only=True):
    """The result of a deployment: a new version, or an existing one with the same content."""

    workflow_id: str
    change: str
    problems: list[Problem] = absent([])


class OutcomeView(View, frozen=True, kw_only=True):
    """One of the newest executions of a workflow."""

    execution_id: str
    status: str
    started_at: str
    total_duration_ms: int | None = absent(None)


class WorkflowActivity(View, frozen=True, kw_only=True):
    """The newest executions of a workflow, newest first, and quantiles of the durations of the `measured` ones that
    ended last; null if none has."""

    outcomes: list[OutcomeView]
    measured: int = absent(0)
    p50_ms: int | None = absent(None)
    p95_ms: int | None = absent(None)


class WorkflowView(View, frozen=True, kw_only=True):
    """A deployed workflow in a list. `activity` is null unless the request asks for it."""

    workflow_id: str
    name: str
    latest: int
    versions: int
    aliases: dict[str, int]
    deployed_at: str
    hidden: bool = absent(False)
    activity: WorkflowActivity | None = absent(None)


class WorkflowPage(View, frozen=True, kw_only=True):
    """A page of workflows, ordered by id."""

    workflows: list[WorkflowView]
    next: str | None = absent(None)


class VersionPage(View, frozen=True, kw_only=True):
    """A page of versions, oldest first."""

    versions: list[VersionView]
    next: str | None = absent(None)


class WorkflowDetail(VersionView, frozen=True, kw_only=True):
    """A version of a workflow with its definition."""

    workflow_id: str
    name: str
    definition: dict[str, Any]


class PlannedNode(View, frozen=True, kw_only=True):
    """A node of a checked document: its outlets in order, the innermost split around it, and the nodes whose outputs
    its expressions may mention."""

    outlets: list[str] = absent([])
    split: str | None = absent(None)
    mentions: list[str] = absent([])


class Checked(View, frozen=True, kw_only=True):
    """The result of a validation; `hash` is null if the document is invalid. `plan` has the nodes by id and `layout`
    their places, if they were requested and the document could be read."""

    valid: bool
    workflow_id: str | None = absent(None)
    hash: str | None = absent(None)
    problems: list[Problem] = absent([])
    plan: dict[str, PlannedNode] | None = absent(None)
    layout: LayoutView | None = absent(None)


class AliasView(View, frozen=True, kw_only=True):
    """An alias. Starts go to `version`, except for the percentages in `weights`; `revision` counts the changes."""

    alias: str
    version: int
    weights: dict[int, float] = absent({})
    revision: int = absent(0)


class PointedAlias(AliasView, frozen=True, kw_only=True):
    """An alias after a request. `change` is what the request did, `moved` or `none`, to point the alias at `target`,
    which is null from an older server; the other fields are also those of a later request that came before the
    response."""

    change: str = absent("moved")
    target: VersionView | None = absent(None)


class Archived(View, frozen=True, kw_only=True):
    """An archived workflow; `changed` is false if it was archived before. An older server sends nothing."""

    workflow_id: str = absent("")
    changed: bool = absent(True)


class AliasList(View, frozen=True, kw_only=True):
    """The aliases of a workflow."""

    aliases: list[AliasView]
