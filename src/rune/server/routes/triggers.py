"""Routes for triggers: webhooks and schedules."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Depends, Query
from pydantic import Field

from rune.api.triggers import RotatedView, SchedulePreview, TriggerList, TriggerView
from rune.core.permissions import Principal
from rune.nodes.control.schedule import check_schedule, next_times
from rune.nodes.schema import Unit
from rune.ports.clock import moment
from rune.ports.workflows import Trigger, TriggerNotFoundError
from rune.server.resource import Resource, example
from rune.server.responses import Reply
from rune.server.routing import Caller, Id, JsonBody, Omittable, QueryModel, Server, TriggerId
from rune.server.schemas.triggers import rotated_view, trigger_view

triggers = Resource("triggers")


class TriggerQuery(QueryModel):
    """Filters of the list of triggers."""

    workflow: Omittable[Id] = None


class RotateTriggerBody(JsonBody):
    """Options of a rotation: a new secret instead of a new path."""

    secret: bool = False


async def find_visible(trigger: TriggerId, server: Server, caller: Caller) -> Trigger:
    """Return the trigger of a path, if the caller may see its workflow."""
    found = await server.services.triggers.find(trigger)
    if not caller.sees(found.workflow):
        raise TriggerNotFoundError(f"there is no trigger `{trigger}`")
    return found


VisibleTrigger = Annotated[Trigger, Depends(find_visible)]


@triggers.get("/triggers", requires="view")
async def list_triggers(
    query: Annotated[TriggerQuery, Query()],
    server: Server,
    caller: Caller,
) -> Reply[TriggerList]:
    """List triggers.

    For all workflows, or for one."""
    found = await server.services.triggers.list(query.workflow)
    shown = [_view(each, caller) for each in found if caller.sees(each.workflow)]
    return Reply(TriggerList(triggers=shown))


@triggers.get("/triggers/{trigger}", requires="view")
async def get_trigger(
    trigger: VisibleTrigger,
    caller: Caller,
) -> Reply[TriggerView]:
    """Get a trigger.

    By id."""
    return Reply(_view(trigger, caller))


@triggers.post("/triggers/{trigger}/enable", requires="edit")
async def enable_trigger(
    trigger: VisibleTrigger,
    server: Server,
    caller: Caller,
) -> Reply[TriggerView]:
    """Enable a trigger.

    Starts that were due while it was disabled are not made up for."""
    return Reply(_view(await server.services.triggers.enable(trigger.id, True), caller))


@triggers.post("/triggers/{trigger}/disable", requires="edit")
async def disable_trigger(
    trigger: VisibleTrigger,
    server: Server,
    caller: Caller,
) -> Reply[TriggerView]:
    """Disable a trigger.

    A disabled webhook responds with 404; a disabled schedule is never due."""
    return Reply(_view(await server.services.triggers.enable(trigger.id, False), caller))


@triggers.post(
    "/triggers/{trigger}/rotate",
    requires="edit",
    responses={409: "The path or the secret is not generated, so it cannot be rotated."},
)
async def rotate_trigger(
    trigger: VisibleTrigger,
    body: Annotated[
        RotateTriggerBody, Body(default_factory=RotateTriggerBody, openapi_examples=example({"secret": True}))
    ],
    server: Server,
) -> Reply[RotatedView]:
    """Rotate the path or the secret of a webhook.

    The old one is invalid from now on."""
    rotated = await server.services.triggers.rotate(trigger.id, body.secret)
    return Reply(rotated_view(rotated))


class SchedulePreviewBody(JsonBody):
    """The times of a `schedule` node: `cron` in a `timezone`, or every `amount` of a `unit`."""

    cron: Annotated[str, Field(max_length=200)] | None = None
    timezone: Annotated[str, Field(max_length=100)] = "UTC"
    amount: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    unit: Unit = "minutes"
    count: Annotated[int, Field(ge=1, le=100, description="The number of times to return.")] = 5


@triggers.post("/schedules/preview", requires="view")
async def preview_schedule(
    body: Annotated[
        SchedulePreviewBody,
        Body(openapi_examples=example({"cron": "0 9 * * 1-5", "timezone": "Europe/Berlin"})),
    ],
    server: Server,
) -> Reply[SchedulePreview]:
    """List the next times of a schedule.

    As if it were deployed now. Nothing is stored."""
    given = body.model_dump(exclude={"count"}, exclude_none=True)
    problems = check_schedule(given)
    ticks = [] if problems else next_times(given, server.clock.now(), body.count)
    return Reply(SchedulePreview(ticks=[moment(each) for each in ticks], problems=problems))


def _view(trigger: Trigger, principal: Principal) -> TriggerView:
    return trigger_view(trigger, with_path=principal.may("run"))
