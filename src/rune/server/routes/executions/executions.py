"""Routes that start executions, read them and compare two of them. A start is durable before its response is sent."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Body, Query
from pydantic import AwareDatetime, BaseModel, Field
from starlette.requests import Request

from rune.api.executions import CountView, ExecutionDetail, ExecutionPage, Explanation, Started
from rune.core.definition.parser import Pins
from rune.core.execution.explain import expected_by
from rune.core.execution.explain import explain as why
from rune.core.limits import LIMITS
from rune.core.permissions import Principal, fits
from rune.ports.journal import ExecutionRecord
from rune.ports.queries import ExecutionFilter, Summary, ended_summary
from rune.ports.workflows import LATEST, choose, workflow_not_found
from rune.runtime.execution_data import ExecutionNotFoundError
from rune.runtime.lifecycle.launcher import StartOptions, new_execution_id
from rune.runtime.live import active_runs
from rune.runtime.queries.value_parts import JsonObject, JsonText
from rune.server.auth import check_definition, check_right
from rune.server.context import ServerContext
from rune.server.live.feed import PendingEnd
from rune.server.resource import Resource, example
from rune.server.responses import Accepted, ApiError, Reply
from rune.server.routing import (
    ID,
    PREFIX,
    Caller,
    ExecutionId,
    FastRoute,
    Id,
    IdempotencyKey,
    JsonBody,
    LateResponse,
    Omittable,
    Page,
    QueryModel,
    RawJson,
    Server,
    WorkflowId,
    check_cursor,
)
from rune.server.schemas.executions import error_view, execution_detail, execution_view, started
from rune.server.views.value_parts import PartQuery, value_reply

starts = Resource("starts", route_class=FastRoute)

MAX_LABELS = 64

START_RESPONSES = {
    200: "The idempotency key was used before; this is the execution that it started.",
    429: "A start limit is exceeded; `Retry-After` is in seconds.",
}

LabelName = Annotated[str, Field(min_length=1, max_length=128)]
LabelValue = Annotated[str, Field(max_length=1_024)]
Labels = Annotated[dict[LabelName, LabelValue], Field(max_length=MAX_LABELS)]
Priority = Annotated[int, Field(ge=0, le=10)]
VersionText = Annotated[str, Field(min_length=1, max_length=128)]
VersionNumber = Annotated[int, Field(ge=1, le=999_999_999_999_999)]
Which = Annotated[
    VersionText | VersionNumber,
    Field(description="A version by its number (`3`, `v3`, `3` as a number) or an alias."),
]
PinnedOutputs = Annotated[
    dict[Id, Any],
    Field(description="Outputs of nodes that are not called, by node; of a split, the list of its items."),
]
PinnedOutlets = Annotated[
    dict[Id, Annotated[str, Field(min_length=1, max_length=200)]],
    Field(description="The outlets of pinned nodes that have outlets, by node."),
]
executions = Resource("executions")
ID_BEGINNING = re.compile(r"x[0-9a-f]{3,40}")
BATCH_SIZE = 200  # executions per read of a search
MAX_SCANNED = 2_000  # executions per search
Status = Literal["running", "paused", "completed", "failed", "halted", "cancelled"]
Label = Annotated[str, Field(max_length=1_200, pattern="=", description="`name=value`; may be repeated.")]


class StartBody(JsonBody):
    """Options of a start. All are optional."""

    max_bytes = LIMITS.payload_bytes + LIMITS.definition_bytes + 64 * 1024

    input: RawJson = Field(default_factory=lambda: b"{}")
    version: Which | None = None
    labels: Labels = Field(default={})
    priority: Priority | None = None
    fake_time: bool = False
    pins: PinnedOutputs = Field(default={})
    outlets: PinnedOutlets = Field(default={})


class AnyStartBody(StartBody):
    """A start of a deployed workflow, or of a definition that is not stored as a workflow."""

    workflow: Id | None = None
    definition: RawJson = Field(default_factory=bytes)


StartWait = Annotated[
    float,
    Query(
        ge=0,
        le=60,
        description="Seconds to wait for the end of the execution. The response then has it as `execution`.",
    ),
]


StartReply = Accepted[Started] | Reply[Started] | LateResponse


def accepted_reply(accepted: ExecutionRecord, execution: ExecutionDetail | None = None) -> Accepted[Started]:
    """Respond with an execution that was accepted by this request."""
    return Accepted(started(accepted, replayed=False, execution=execution), _location(accepted))


def _replayed_reply(accepted: ExecutionRecord, execution: ExecutionDetail | None = None) -> Reply[Started]:
    """Respond with an execution that was accepted by an earlier request with the same key."""
    return Reply(started(accepted, replayed=True, execution=execution), _location(accepted))


def _location(accepted: ExecutionRecord) -> dict[str, str]:
    return {"Location": f"{PREFIX}/executions/{accepted.id}"}


@starts.post("/workflows/{workflow}/executions", requires="run", responses=START_RESPONSES)
async def start_workflow(
    workflow: WorkflowId,
    body: Annotated[
        StartBody,
        Body(
            default_factory=StartBody,
            openapi_examples=example(
                {"input": {"name": "World"}, "version": "stable", "labels": {"customer": "7"}}
            ),
        ),
    ],
    server: Server,
    caller: Caller,
    idempotency_key: IdempotencyKey = None,
    wait: StartWait = 0,
) -> StartReply:
    """Start a deployed workflow.

    Starts the given version, or the latest. With `wait`, responds when the execution has ended or the time is
    over."""
    return await _start(server, caller, workflow, body, idempotency_key, wait)


@starts.post("/executions", requires="run", responses=START_RESPONSES)
async def start_execution(
    body: Annotated[
        AnyStartBody, Body(openapi_examples=example({"workflow": "hello", "input": {"name": "World"}}))
    ],
    server: Server,
    caller: Caller,
    idempotency_key: IdempotencyKey = None,
    wait: StartWait = 0,
) -> StartReply:
    """Start a deployed workflow or a definition.

    Requires either `workflow` or `definition`. With `wait`, responds when the execution has ended or the time is
    over."""
    # Sending a definition amounts to editing one.
    if body.definition:
        check_right(caller, "edit")
        check_definition(caller, body.definition)
    if (body.workflow is None) == (not body.definition):
        raise ApiError("body: requires either `workflow` or `definition`", code="BAD_BODY")
    if body.workflow is not None:
        return await _start(server, caller, body.workflow, body, idempotency_key, wait)
    if body.version is not None or body.priority is not None:
        raise ApiError("body: `version` and `priority` require `workflow`", code="BAD_BODY")
    options, id = _start_options(body, idempotency_key, wait)
    starting = server.services.executions.start_definition(
        body.definition, body.input, options, execution=id, new_id=True
    )
    return await _started(server, starting, id, wait)


async def _start(
    server: ServerContext, caller: Principal, workflow: str, body: StartBody, key: str | None, wait: float
) -> StartReply:
    if not caller.sees(workflow):
        raise workflow_not_found(workflow, (), LATEST)
    if body.pins or body.outlets:  # amounts to another definition
        check_right(caller, "edit")
    options, id = _start_options(body, key, wait)
    which = None if body.version is None else str(body.version)
    starting = server.services.executions.start(
        workflow, which, body.input, options, priority=body.priority, execution=id, new_id=True
    )
    return await _started(server, starting, id, wait)


def _start_options(body: StartBody, key: str | None, wait: float) -> tuple[StartOptions, str | None]:
    """Return the options of a start. With an idempotency key or a wait the execution id is chosen here; if the start
    returns another id, an earlier request used the key."""
    pins = Pins(body.pins, body.outlets)
    options = StartOptions(
        key=key, labels=body.labels, fake_time=body.fake_time, pins=pins, followed=wait > 0
    )
    return options, None if key is None and not wait else new_execution_id()


async def _started(
    server: ServerContext, starting: Awaitable[ExecutionRecord], id: str | None, wait: float
) -> StartReply:
    """Start an execution, and respond at once or, if that is wanted, after its end."""
    if not wait or id is None:
        accepted = await starting
        return accepted_reply(accepted) if id in {None, accepted.id} else _replayed_reply(accepted)
    with ExitStack() as stack:
        pending = stack.enter_context(server.feeds.awaiting(id))
        accepted = await starting
        if accepted.id == id:
            return LateResponse(_ended(server, accepted, pending, wait, stack.pop_all()))
    return LateResponse(_ended_before(server, accepted, wait))


async def _ended(
    server: ServerContext, accepted: ExecutionRecord, pending: PendingEnd, wait: float, stack: ExitStack
) -> Accepted[Started]:
    with stack:
        end = await pending.wait(wait)
    summary = await summary_of(server, accepted.id) if end is None else ended_summary(accepted, end)
    return accepted_reply(accepted, execution_detail(summary, accepted))


async def _ended_before(server: ServerContext, accepted: ExecutionRecord, wait: float) -> Reply[Started]:
    return _replayed_reply(accepted, await _waited(server, accepted.id, wait))


class ExecutionFilters(BaseModel):
    """Filters of executions; all of them must match."""

    status: list[Status] = Field(
        default=[],
        description="May be repeated: executions with any of them. `failed` selects halted ones too.",
    )
    workflow: Omittable[Id] = None
    version: Omittable[
        Annotated[
            str,
            Field(
                pattern=f"^{ID}$",
                description="Only executions of this version, a number or an alias; requires `workflow`.",
            ),
        ]
    ] = None
    failed_items: Annotated[
        bool, Field(description="Only ended executions in which at least one item of a split failed.")
    ] = False
    stuck: Annotated[
        bool,
        Field(
            description="Only running executions without progress for 15 minutes that wait for no time and no signal."
        ),
    ] = False
    label: list[Label] = Field(default=[])
    since: Annotated[
        AwareDatetime | None, Field(description="Only executions that started at this time or later.")
    ] = None
    until: Annotated[
        AwareDatetime | None, Field(description="Only executions that started before this time.")
    ] = None
    code: Omittable[
        Annotated[
            str, Field(min_length=1, max_length=200, description="The code of the error it ended with.")
        ]
    ] = None
    principal: Omittable[
        Annotated[str, Field(min_length=1, max_length=200, description="The principal that started it.")]
    ] = None
    parent: Omittable[Annotated[Id, Field(description="Only children of this execution.")]] = None
    retry_of: Omittable[Annotated[Id, Field(description="Only retries and reruns of this execution.")]] = None


class ExecutionQuery(ExecutionFilters, Page):
    """Filters of the list of executions; all of them must match."""

    created_after: Annotated[AwareDatetime | None, Field(description="The same as `since`.")] = None
    q: Omittable[
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=200,
                description="The beginning of an id; or a part of an id, a workflow, a label or an error code.",
            ),
        ]
    ] = None
    count: Omittable[
        Annotated[
            Literal["estimate"],
            Field(
                description="Also count the executions; many are estimated. With `q` only if all are on the page."
            ),
        ]
    ] = None


class WaitQuery(QueryModel):
    """Options of a read."""

    wait: Annotated[
        float, Field(ge=0, le=60, description="Seconds to wait for the end of the execution.")
    ] = 0


@executions.get("/executions", requires="view")
async def list_executions(
    query: Annotated[ExecutionQuery, Query()],
    server: Server,
    caller: Caller,
) -> Reply[ExecutionPage]:
    """List executions, newest first.

    A page may hold fewer than `limit` and still have a `next` cursor, because each request reads a limited
    number."""
    wanted = await execution_filter(server, query, caller, query.created_after)
    if query.q is not None:
        page, following = await _find_text(server, wanted, query, query.q)
    else:
        found = await server.reader.search(wanted, after=query.cursor, limit=query.limit)
        page, following = found.executions, found.next
    await check_cursor(server.reader, query.cursor, page)
    counted = None
    if query.count is not None and query.q is not None:
        # No index has the text: it is counted if all that have it are on the page.
        if query.cursor is None and following is None:
            counted = CountView(value=len(page), exact=True)
    elif query.count is not None:
        number = await server.reader.count(wanted)
        counted = CountView(value=number.count, exact=number.exact)
    return Reply(
        ExecutionPage(executions=[execution_view(each) for each in page], next=following, count=counted)
    )


async def _find_text(
    server: ServerContext, wanted: ExecutionFilter, query: ExecutionQuery, text: str
) -> tuple[list[Summary], str | None]:
    """Return the executions whose id begins with a text; if there is none, those that contain it."""
    by_id = await server.reader.matching(text, query.limit) if ID_BEGINNING.fullmatch(text) else []
    if by_id:
        named = [await server.reader.execution(id) for id in by_id]
        seen = [each for each in named if each is not None and matches_filter(each, wanted)]
        if wanted.stuck:
            now = server.clock.now()
            seen = [each for each in seen if await server.reader.stuck.is_stuck(each, now)]
        return sorted(seen, key=lambda each: -each.started_at), None
    found: list[Summary] = []
    after, scanned = query.cursor, 0
    while scanned < MAX_SCANNED:
        page = await server.reader.search(wanted, after=after, limit=BATCH_SIZE)
        for each in page.executions:
            after = each.id
            if _contains(each, text.lower()):
                found.append(each)
                if len(found) == query.limit:
                    return found, after
        after, scanned = page.next, scanned + BATCH_SIZE
        if after is None:
            break
    return found, after


async def execution_filter(
    server: ServerContext, query: ExecutionFilters, caller: Principal, since_too: datetime | None = None
) -> ExecutionFilter:
    """Return the filter of a request, limited to the scopes of the caller."""
    hash = None
    if query.version is not None:
        if query.workflow is None:
            raise ApiError("query: `version` requires `workflow`", code="BAD_QUERY")
        if not caller.sees(query.workflow):
            raise workflow_not_found(query.workflow, (), LATEST)
        versions = await server.reader.workflows.versions(query.workflow)
        hash = choose(query.workflow, versions, query.version).hash
    since = [_ms(each) for each in (query.since, since_too) if each is not None]
    return ExecutionFilter(
        statuses=tuple(dict.fromkeys(query.status)),
        workflow=query.workflow,
        hash=hash,
        failed_items=query.failed_items,
        stuck=query.stuck,
        labels=dict(each.split("=", 1) for each in query.label),
        since=max(since, default=None),
        until=None if query.until is None else _ms(query.until),
        code=query.code,
        principal=query.principal,
        parent=query.parent,
        retry_of=query.retry_of,
        scopes=caller.scopes,
    )


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def matches_filter(each: Summary, wanted: ExecutionFilter) -> bool:
    """Return whether an execution has the properties of a filter that its summary shows."""
    return (
        (not wanted.statuses or each.status in wanted.statuses)
        and wanted.workflow in (None, each.workflow)
        and wanted.hash in (None, each.hash)
        and (not wanted.scopes or any(fits(scope, each.workflow) for scope in wanted.scopes))
        and wanted.labels.items() <= each.labels.items()
    )


def _contains(each: Summary, text: str) -> bool:
    texts = (each.id, each.workflow, *each.labels.values(), each.error.code if each.error else "")
    return any(text in part.lower() for part in texts)


async def summary_of(server: ServerContext, execution: str) -> Summary:
    """Return an execution, or raise if it does not exist."""
    found = await server.reader.execution(execution)
    if found is None:
        raise ExecutionNotFoundError(f"no execution has the id {execution}")
    return found


@executions.get("/executions/{execution}", requires="view")
async def get_execution(
    execution: ExecutionId,
    query: Annotated[WaitQuery, Query()],
    server: Server,
) -> Reply[ExecutionDetail]:
    """Get an execution.

    With `wait`, responds when the execution has ended or the time is over."""
    if query.wait:
        return Reply(await _waited(server, execution, query.wait))
    summary, accepted = await asyncio.gather(summary_of(server, execution), server.reader.accepted(execution))
    return Reply(execution_detail(summary, accepted))


async def _waited(server: ServerContext, execution: str, seconds: float) -> ExecutionDetail:
    """Return an execution when it has ended or the time is over."""
    with server.feeds.awaiting(execution) as pending:
        summary, accepted = await asyncio.gather(
            summary_of(server, execution), server.reader.accepted(execution)
        )
        if summary.ended_at is None:
            end = await pending.wait(seconds)
            summary = await summary_of(server, execution) if end is None else ended_summary(accepted, end)
    return execution_detail(summary, accepted)


@executions.get("/executions/{execution}/document", requires="view")
async def get_execution_document(execution: ExecutionId, server: Server, request: Request) -> Reply[Any]:
    """Get an ended execution as one document.

    The document that `rune run --json` prints. Read long executions in pages instead."""
    async with server.reading.take(request):
        return Reply(await (await server.reader.history(execution)).document())


@executions.get("/executions/{execution}/output", requires="view")
async def get_execution_output(
    execution: ExecutionId, query: Annotated[PartQuery, Query()], server: Server
) -> Reply[Any]:
    """Get the output of an execution.

    The value of its output node, or the values of its leaf nodes; null unless it completed. With `pointer`, `depth`,
    `offset` or `limit` a part of it, as a `ValuePart`; with `find` matches in it, as `ValueMatches`."""
    summary = await summary_of(server, execution)
    if summary.ended_at is None:
        raise ApiError(f"{summary.id} has not ended", code="NOT_ENDED")

    if not query.wanted:
        return await value_reply(await (await server.reader.history(summary.id)).encoded_output(), query)

    async def load() -> JsonText:
        history = await server.reader.history(summary.id)
        found = {
            history.plan.ids[node]: await server.values.node_value(
                history, node, (), partial(history.encoded_value, node)
            )
            for node in history.output_nodes()
        }
        if history.has_output_node:
            return next(iter(found.values()), JsonText(b"null"))
        return JsonObject(found)

    return await value_reply(await server.values.get((summary.id, "output"), load), query)


@executions.get("/executions/{execution}/input", requires="view")
async def get_execution_input(
    execution: ExecutionId, query: Annotated[PartQuery, Query()], server: Server
) -> Reply[Any]:
    """Get the input of an execution.

    The start payload, a part of it as a `ValuePart`, or with `find` matches in it as `ValueMatches`."""
    load = partial(server.reader.start_payload, execution)
    if not query.wanted:
        return await value_reply(await load(), query)
    return await value_reply(await server.values.get((execution, "start"), load), query)


@executions.get("/executions/{execution}/explain", requires="view")
async def explain_execution(execution: ExecutionId, server: Server) -> Reply[Explanation]:
    """Explain what an execution is waiting for.

    For each waiting node: which inputs arrived, were skipped or are missing, what it waits for and until when; and
    when the execution is late."""
    id = execution
    summary = await summary_of(server, id)
    plan, state = await server.reader.state(id, server.clock.now(), server.engine.backend.state.peek)
    active = None
    if summary.ended_at is None:
        active = active_runs(await server.engine.live.running(id), server.clock.now())
    return Reply(
        Explanation(
            execution_id=id,
            workflow_id=summary.workflow,
            status="paused" if state.paused_at is not None else summary.status,
            error=error_view(summary.error),
            waiting=why(plan, state, active),
            expected_by=expected_by(plan, state),
        )
    )
