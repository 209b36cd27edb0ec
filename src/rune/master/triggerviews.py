"""Triggers as the API and the command line show them."""

from __future__ import annotations

from typing import Literal

import msgspec

from rune.master.views import View
from rune.ports.trigger import Trigger
from rune.runtime.history import iso
from rune.runtime.triggers import Rotated


class HookView(View, frozen=True, kw_only=True):
    """A hook. `path` is told to those who may start executions. `secret`: nobody's, a credential's, made for this
    trigger, or still missing."""

    path: str | None
    method: str
    auth: str
    secret: Literal["none", "credential", "made", "missing"]
    window: int
    respond: str


class ScheduleView(View, frozen=True, kw_only=True):
    """A schedule, and how far it is. `waiting` counts ticks that wait for the execution before."""

    cron: str | None
    timezone: str
    every_ms: int | None
    catch_up: str
    overlap: str
    next_at: str | None
    waiting: int
    last_execution_id: str | None
    trouble: str


class TriggerView(View, frozen=True, kw_only=True):
    """A trigger of the version that is followed."""

    id: str
    workflow_id: str
    node_id: str
    kind: Literal["webhook", "schedule"]
    version: int
    enabled: bool
    created_at: str
    webhook: HookView | None
    schedule: ScheduleView | None


class RotatedView(TriggerView, frozen=True, kw_only=True):
    """A trigger after a rotation. A new secret is told this once."""

    new_secret: str | None


class TriggerList(View, frozen=True, kw_only=True):
    """All triggers by workflow and node."""

    triggers: list[TriggerView]


def trigger_view(trigger: Trigger, *, with_path: bool = True) -> TriggerView:
    """A trigger. Whoever knows the path of a hook may start executions with it."""
    return TriggerView(
        id=trigger.id,
        workflow_id=trigger.workflow,
        node_id=trigger.node,
        kind=trigger.kind,
        version=trigger.version,
        enabled=trigger.enabled,
        created_at=iso(trigger.at) or "",
        webhook=_hook(trigger, with_path=with_path),
        schedule=_schedule(trigger),
    )


def rotated_view(rotated: Rotated) -> RotatedView:
    """A trigger after a rotation, with a secret that was made."""
    return RotatedView(**msgspec.structs.asdict(trigger_view(rotated.trigger)), new_secret=rotated.secret)


def _hook(trigger: Trigger, *, with_path: bool) -> HookView | None:
    hook = trigger.hook
    if hook is None:
        return None
    secret: Literal["none", "credential", "made", "missing"] = "none"
    if hook.auth != "none":
        secret = "made" if trigger.made_secret else "missing" if trigger.credential is None else "credential"
    return HookView(
        path=f"/hooks/{trigger.path}" if with_path else None,
        method=hook.method,
        auth=hook.auth,
        secret=secret,
        window=hook.window,
        respond=hook.respond,
    )


def _schedule(trigger: Trigger) -> ScheduleView | None:
    schedule, standing = trigger.schedule, trigger.standing
    if schedule is None:
        return None
    return ScheduleView(
        cron=schedule.cron,
        timezone=schedule.timezone,
        every_ms=schedule.every or None,
        catch_up=schedule.catch_up,
        overlap=schedule.overlap,
        next_at=iso(standing.next) if trigger.enabled else None,
        waiting=len(standing.waiting),
        last_execution_id=standing.last,
        trouble=trigger.trouble,
    )
