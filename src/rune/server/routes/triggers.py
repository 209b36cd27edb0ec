"""Routes for triggers: webhooks and schedules."""

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
    """Filters of the list of triggers."""

    workflow: Id | None = None


class RotateTriggerBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a rotation: a new secret instead of a new path."""

    secret: bool = False


@triggers("GET", "/triggers", "List triggers", permission="view", query=TriggerQuery, response=TriggerList)
async def list_triggers(call: RequestContext) -> Response:
    """For all workflows, or for one."""
    found = await call.server.services.triggers.list(call.query.workflow)
    shown = [_view(each, call.principal) for each in found if call.principal.sees(each.workflow)]
    return Reply(TriggerList(triggers=shown))


@triggers("GET", "/triggers/{trigger}", "Get a trigger", permission="view", response=TriggerView)
async def get_trigger(call: RequestContext) -> Response:
    """By id."""
    return Reply(_view(await _find_visible(call), call.principal))


@triggers("POST", "/triggers/{trigger}/enable", "Enable a trigger", permission="edit", response=TriggerView)
async def enable_trigger(call: RequestContext) -> Response:
    """Starts that were due while it was disabled are not made up for."""
    trigger = await _find_visible(call)
    return Reply(_view(await call.server.services.triggers.enable(trigger.id, True), call.principal))


@triggers("POST", "/triggers/{trigger}/disable", "Disable a trigger", permission="edit", response=TriggerView)
async def disable_trigger(call: RequestContext) -> Response:
    """A disabled webhook responds with 404; a disabled schedule is never due."""
    trigger = await _find_visible(call)
    return Reply(_view(await call.server.services.triggers.enable(trigger.id, False), call.principal))


@triggers(
    "POST",
    "/triggers/{trigger}/rotate",
    "Rotate the path or the secret of a webhook",
    permission="edit",
    body=RotateTriggerBody,
    optional=True,
    response=RotatedView,
    responses={409: "The path or the secret is not generated, so it cannot be rotated."},
    example={"secret": True},
)
async def rotate_trigger(call: RequestContext) -> Response:
    """The old one is invalid from now on."""
    trigger = await _find_visible(call)
    rotated = await call.server.services.triggers.rotate(trigger.id, call.body.secret)
    return Reply(rotated_view(rotated))


async def _find_visible(call: RequestContext) -> Trigger:
    id = call.path["trigger"]
    trigger = await call.server.services.triggers.find(id)
    if not call.principal.sees(trigger.workflow):
        raise TriggerNotFoundError(f"there is no trigger `{id}`")
    return trigger


def _view(trigger: Trigger, principal: Principal) -> TriggerView:
    return trigger_view(trigger, with_path=principal.may("run"))
