"""Routes for the default handlers of failed and late executions, and for those that could not be started."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Body, Query
from pydantic import Field
from starlette.responses import Response

from rune.core.definition.model import HOOKED, HookHandler, HookStatus
from rune.ports.clock import iso
from rune.ports.journal import FailedHook, HandlerDefaults
from rune.runtime.services.handlers import MAX_FAILED
from rune.server.auth import requires
from rune.server.responses import Reply
from rune.server.routing import JsonBody, QueryModel, Server, example, resource
from rune.server.schemas import View

handlers = resource("handlers")

Workflow = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}$", description="The id of a workflow.")]
Version = Annotated[int | str | None, Field(description="A version or alias. Default: the latest.")]
Status = Literal["failed", "halted", "cancelled", "failed_items"]


class LateHandlerBody(JsonBody):
    """The workflow that is started for late executions."""

    workflow: Workflow
    version: Version = None


class HandlerBody(LateHandlerBody):
    """The workflow that is started for executions that end with one of these statuses."""

    statuses: tuple[Status, ...] = Field(HOOKED, strict=False)


class HandlersBody(JsonBody):
    """The handlers of deployed workflows that name none. A field that is left out has none."""

    on_failure: HandlerBody | None = None
    on_late: LateHandlerBody | None = None


class LateHandlerView(View, frozen=True, kw_only=True):
    workflow: str
    version: int | str | None


class HandlerView(LateHandlerView, frozen=True, kw_only=True):
    statuses: list[HookStatus]


class HandlersView(View, frozen=True, kw_only=True):
    """The handlers of deployed workflows that name none."""

    on_failure: HandlerView | None
    on_late: LateHandlerView | None


class FailedHandlerView(View, frozen=True, kw_only=True):
    """A handler that could not be started. Without `given_up_at` its start is repeated."""

    execution_id: str
    kind: Literal["failure", "late"]
    at: str
    tries: int
    error: str
    given_up_at: str | None


class FailedHandlers(View, frozen=True, kw_only=True):
    handlers: list[FailedHandlerView]


class FailedQuery(QueryModel):
    limit: Annotated[int, Field(ge=1, le=MAX_FAILED)] = 100


def handlers_view(found: HandlerDefaults) -> HandlersView:
    failure, late = found.on_failure, found.on_late
    return HandlersView(
        on_failure=None
        if failure is None
        else HandlerView(workflow=failure.workflow, version=failure.version, statuses=list(failure.statuses)),
        on_late=None if late is None else LateHandlerView(workflow=late.workflow, version=late.version),
    )


def failed_view(each: FailedHook) -> FailedHandlerView:
    return FailedHandlerView(
        execution_id=each.execution,
        kind="late" if each.kind == "late" else "failure",
        at=str(iso(each.at)),
        tries=each.tries,
        error=each.error,
        given_up_at=iso(each.given_up),
    )


@handlers.get(
    "/handlers",
    summary="Get the default handlers",
    dependencies=[requires("admin")],
    response_model=HandlersView,
)
async def get_handlers(server: Server) -> Response:
    """They are for executions of deployed workflows whose `settings` name no handler."""
    return Reply(handlers_view(await server.services.handlers.defaults()))


@handlers.put(
    "/handlers",
    summary="Replace the default handlers",
    dependencies=[requires("admin")],
    response_model=HandlersView,
)
async def put_handlers(
    body: Annotated[
        HandlersBody,
        Body(openapi_examples=example({"on_failure": {"workflow": "tell-ops"}})),
    ],
    server: Server,
) -> Response:
    """Applies from the next end on. An empty object removes all of them."""
    failure, late = body.on_failure, body.on_late
    found = await server.services.handlers.set_defaults(
        None
        if failure is None
        else HookHandler(workflow=failure.workflow, version=failure.version, statuses=failure.statuses),
        None if late is None else HookHandler(workflow=late.workflow, version=late.version),
    )
    return Reply(handlers_view(found))


@handlers.get(
    "/handlers/failed",
    summary="List handlers that could not be started, newest first",
    dependencies=[requires("admin")],
    response_model=FailedHandlers,
)
async def list_failed_handlers(query: Annotated[FailedQuery, Query()], server: Server) -> Response:
    """Those that were given up are listed for 30 days."""
    found = await server.services.handlers.failed(query.limit)
    return Reply(FailedHandlers(handlers=[failed_view(each) for each in found]))
