"""Triggers as the API shows them."""

from __future__ import annotations

from typing import Literal

import msgspec

from rune.api.triggers import HookView, RotatedView, ScheduleView, TriggerView
from rune.ports.clock import iso
from rune.ports.workflows import Trigger
from rune.runtime.services.workflows import RotatedSecret


def trigger_view(trigger: Trigger, *, with_path: bool = True) -> TriggerView:
    """Convert a trigger, without the path of a webhook for callers that may not start executions."""
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


def rotated_view(rotated: RotatedSecret) -> RotatedView:
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
