"""Routes for the default handlers of failed, late and missing executions, and for those that could not be started."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Body, Query
from pydantic import Field

from rune.api.handlers import FailedHandlers, FailedHandlerView, HandlersView, HandlerView, LateHandlerView
from rune.core.definition.model import HOOKED, HookHandler
from rune.ports.clock import iso
from rune.ports.journal import FailedHook, HandlerDefaults
from rune.runtime.services.handlers import MAX_FAILED
from rune.server.resource import Resource, example
from rune.server.responses import Reply
from rune.server.routing import JsonBody, QueryModel, Server

handlers = Resource("handlers")

Workflow = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}$", description="The id of a workflow.")]
Version = Annotated[int | str | None, Field(description="A version or alias. Default: the latest.")]
Status = Literal["failed", "halted", "cancelled", "failed_items"]


class LateHandlerBody(JsonBody):
    """The workflow that is started for late or missing executions."""

    workflow: Workflow
    version: Version = None


class HandlerBody(LateHandlerBody):
    """The workflow that is started for executions that end with one of these statuses."""

    statuses: tuple[Status, ...] = Field(HOOKED, strict=False)


class HandlersBody(JsonBody):
    """The handlers of deployed workflows that name none. A field that is left out has none."""

    on_failure: HandlerBody | None = None
    on_late: LateHandlerBody | None = None
    on_missing: LateHandlerBody | None = None


class FailedQuery(QueryModel):
    limit: Annotated[int, Field(ge=1, le=MAX_FAILED)] = 100


def handlers_view(found: HandlerDefaults) -> HandlersView:
    failure = found.on_failure
    return HandlersView(
        on_failure=None
        if failure is None
        else HandlerView(workflow=failure.workflow, version=failure.version, statuses=failure.statuses),
        on_late=_plain_view(found.on_late),
        on_missing=_plain_view(found.on_missing),
    )


def _plain_view(found: HookHandler | None) -> LateHandlerView | None:
    return None if found is None else LateHandlerView(workflow=found.workflow, version=found.version)


def _plain_handler(given: LateHandlerBody | None) -> HookHandler | None:
    return None if given is None else HookHandler(workflow=given.workflow, version=given.version)


def failed_view(each: FailedHook) -> FailedHandlerView:
    return FailedHandlerView(
        execution_id=each.execution if each.workflow is None else None,
        workflow=each.workflow,
        kind="missing" if each.kind == "missing" else "late" if each.kind == "late" else "failure",
        at=str(iso(each.at)),
        tries=each.tries,
        error=each.error,
        given_up_at=iso(each.given_up),
    )


@handlers.get("/handlers", requires="admin")
async def get_handlers(server: Server) -> Reply[HandlersView]:
    """Get the default handlers.

    They are for executions of deployed workflows whose `settings` name no handler."""
    return Reply(handlers_view(await server.services.handlers.defaults()))


@handlers.put("/handlers", requires="admin")
async def put_handlers(
    body: Annotated[
        HandlersBody,
        Body(openapi_examples=example({"on_failure": {"workflow": "tell-ops"}})),
    ],
    server: Server,
) -> Reply[HandlersView]:
    """Replace the default handlers.

    Applies from the next end on. An empty object removes all of them."""
    failure = body.on_failure
    found = await server.services.handlers.set_defaults(
        None
        if failure is None
        else HookHandler(workflow=failure.workflow, version=failure.version, statuses=failure.statuses),
        _plain_handler(body.on_late),
        _plain_handler(body.on_missing),
    )
    return Reply(handlers_view(found))


@handlers.get("/handlers/failed", requires="admin")
async def list_failed_handlers(
    query: Annotated[FailedQuery, Query()], server: Server
) -> Reply[FailedHandlers]:
    """List handlers that could not be started, newest first.

    Those that were given up are listed for 30 days."""
    found = await server.services.handlers.failed(query.limit)
    return Reply(FailedHandlers(handlers=[failed_view(each) for each in found]))
