"""Triggers and times of schedules."""

from __future__ import annotations

from typing import Annotated, Literal

from rune.api.base import Known, View, absent
from rune.core.definition.problems import Problem


class HookView(View, frozen=True, kw_only=True):
    """A webhook. `path` is null for callers without the permission `run`. `secret` is its source:
    none, a credential, made for this trigger, or still missing."""

    path: str | None = absent(None)
    method: str = absent("POST")
    auth: str = absent("none")
    secret: Annotated[str, Known(Literal["none", "credential", "made", "missing"])] = absent("none")
    window: int = absent(300)
    respond: str = absent("accepted")


class ScheduleView(View, frozen=True, kw_only=True):
    """A schedule and its state. `waiting` counts starts that wait for the previous execution to end."""

    cron: str | None = absent(None)
    timezone: str = absent("UTC")
    every_ms: int | None = absent(None)
    catch_up: str = absent("none")
    overlap: str = absent("skip")
    next_at: str | None = absent(None)
    waiting: int = absent(0)
    last_execution_id: str | None = absent(None)
    trouble: str = absent("")


class TriggerView(View, frozen=True, kw_only=True):
    """A trigger of a workflow, as its followed version defines it."""

    id: str
    workflow_id: str
    node_id: str
    kind: Annotated[str, Known(Literal["webhook", "schedule"])]
    version: int
    enabled: bool
    created_at: str
    webhook: HookView | None = absent(None)
    schedule: ScheduleView | None = absent(None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id})"  # without the path and the secret


class RotatedView(TriggerView, frozen=True, kw_only=True):
    """A trigger after a rotation. A new secret is returned only here."""

    new_secret: str | None = absent(None)


class TriggerList(View, frozen=True, kw_only=True):
    """Triggers, ordered by workflow and node."""

    triggers: list[TriggerView]


class SchedulePreview(View, frozen=True, kw_only=True):
    """The next times at which a schedule would start an execution, or what is wrong with it."""

    ticks: list[str]
    problems: list[Problem] = absent([])
