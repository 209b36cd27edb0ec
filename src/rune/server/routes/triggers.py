"""Triggers: what starts executions by itself."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from rune.core.permissions import Principal
from rune.ports.triggers import Trigger, TriggerNotFoundError
from rune.server.endpoints import RequestContext, Router
from rune.server.responses import Reply
from rune.server.routes.executions import Id
from rune.server.schemas import RotatedView, TriggerList, TriggerView, rotated_view, trigger_view

triggers = Router("triggers")


class TriggerQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which triggers are wanted."""

    workflow: Id | None = None


class RotateTriggerBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be new: the path, or the secret."""

    secret: bool = False


@triggers("GET", "/triggers", "List triggers", need="view", query=TriggerQuery, answer=TriggerList)
async def list_triggers(call: RequestContext) -> Response:
    """Of all workflows, or of one."""
    found = await call.master.services.triggers.list(call.query.workflow)
    shown = [_view(each, call.principal) for each in found if call.principal.sees(each.workflow)]
    return Reply(TriggerList(triggers=shown))


@triggers("GET", "/triggers/{trigger}", "One trigger", need="view", answer=TriggerView)
async def get_trigger(call: RequestContext) -> Response:
    """By its id."""
    return Reply(_view(await _seen(call), call.principal))


@triggers("POST", "/triggers/{trigger}/enable", "Switch a trigger on", need="edit", answer=TriggerView)
async def enable_trigger(call: RequestContext) -> Response:
    """What was due while it was off is not made up for."""
    trigger = await _seen(call)
    return Reply(_view(await call.master.services.triggers.enable(trigger.id, True), call.principal))


@triggers("POST", "/triggers/{trigger}/disable", "Switch a trigger off", need="edit", answer=TriggerView)
async def disable_trigger(call: RequestContext) -> Response:
    """A hook is not there then; a schedule is never due."""
    trigger = await _seen(call)
    return Reply(_view(await call.master.services.triggers.enable(trigger.id, False), call.principal))


@triggers(
    "POST",
    "/triggers/{trigger}/rotate",
    "Give a hook a new path or a new secret",
    need="edit",
    body=RotateTriggerBody,
    optional=True,
    answer=RotatedView,
    also={409: "It is not the trigger's own to change."},
    example={"secret": True},
)
async def rotate_trigger(call: RequestContext) -> Response:
    """The old one is worth nothing from now on."""
    trigger = await _seen(call)
    rotated = await call.master.services.triggers.rotate(trigger.id, call.body.secret)
    return Reply(rotated_view(rotated))


async def _seen(call: RequestContext) -> Trigger:
    id = call.path["trigger"]
    trigger = await call.master.services.triggers.find(id)
    if not call.principal.sees(trigger.workflow):
        raise TriggerNotFoundError(f"there is no trigger `{id}`")
    return trigger


def _view(trigger: Trigger, principal: Principal) -> TriggerView:
    return trigger_view(trigger, with_path=principal.may("run"))
