"""Routes that act on executions: cancel, pause, resume, retry, rerun, signal; and the inbox: what waits for a signal,
in all executions.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Body, Query
from pydantic import Field

from rune.api.executions import ActionResultView, SignalResultView, Started
from rune.api.inbox import WaitingPage, WaitingView
from rune.core.definition.parser import Pins
from rune.core.execution.token import Path, path_text
from rune.core.expr import Meter
from rune.core.expr.budget import METER
from rune.core.limits import LIMITS
from rune.core.plan.model import Plan
from rune.errors import LimitExceededError, RuneError
from rune.ports.clock import iso, moment
from rune.ports.journal import ExecutionEndedError
from rune.ports.queries import ExecutionFilter, Summary
from rune.runtime.execution_data import ExecutionData
from rune.runtime.queries.history import CACHE_BYTES
from rune.runtime.queries.node_input import MAX_DECODED_BYTES
from rune.runtime.queries.overview import Overview, Run
from rune.runtime.value_cache import Cache
from rune.runtime.value_refs import ValueNotLoaded
from rune.server.auth import check_definition, check_right
from rune.server.context import ServerContext
from rune.server.resource import Resource, example
from rune.server.responses import Accepted, ApiError, Reply
from rune.server.routes.executions.executions import PinnedOutlets, PinnedOutputs, Which, accepted_reply
from rune.server.routing import (
    Caller,
    ExecutionId,
    Id,
    IdempotencyKey,
    Item,
    JsonBody,
    NodeId,
    Omittable,
    Page,
    QueryModel,
    RawJson,
    Server,
    check_cursor,
)
from rune.server.views.node_runs import NodeRunNotFoundError, parse_scope

actions = Resource("executions")

_RERUN_RESPONSES = {
    409: "The execution has not ended, or has nothing to run again.",
    429: "A start limit is exceeded; `Retry-After` is in seconds.",
}


class CancelBody(JsonBody):
    """Options of a cancellation."""

    reason: Annotated[str, Field(max_length=2_000)] = ""


class RetryBody(JsonBody):
    """Options of a retry. `split`, `item` and `code` limit the failed items that run again: to those of one split,
    within an item of a split around it, and to those with this error code."""

    failed_items: bool = False
    split: Id | None = None
    item: Item | None = None
    code: Annotated[str, Field(min_length=1, max_length=128)] | None = None


class RerunBody(JsonBody):
    """The node, and optionally the item, to run again; and what is different: another payload of the node, parameters
    that replace its own, another version of the workflow, a definition that is not stored, or pins."""

    max_bytes = LIMITS.payload_bytes + LIMITS.definition_bytes + 64 * 1024

    node: Id
    item: Item | None = None
    input: RawJson = Field(default_factory=bytes)
    parameters: RawJson = Field(default_factory=bytes)
    version: Which | None = None
    definition: RawJson = Field(default_factory=bytes)
    pins: PinnedOutputs = Field(default={})
    outlets: PinnedOutlets = Field(default={})


class SignalBody(JsonBody):
    """A signal."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    value: RawJson = Field(default_factory=lambda: b"null")
    item: Item | None = None


@actions.post("/executions/{execution}/cancel", requires="run", responses={409: "The execution has ended."})
async def cancel_execution(
    execution: ExecutionId,
    body: Annotated[
        CancelBody, Body(default_factory=CancelBody, openapi_examples=example({"reason": "ordered twice"}))
    ],
    server: Server,
) -> Reply[ActionResultView]:
    """Cancel an execution.

    Returns the final status if the execution ended otherwise first. Cancelling again changes nothing."""
    try:
        status = await server.services.executions.cancel(execution, body.reason)
    except ExecutionEndedError as ended:
        if ended.end.status != "cancelled":
            raise
        return Reply(ActionResultView(execution_id=execution, status="cancelled", changed=False))
    return Reply(ActionResultView(execution_id=execution, status=status, changed=status == "cancelled"))


@actions.post("/executions/{execution}/pause", requires="run", responses={409: "The execution has ended."})
async def pause_execution(execution: ExecutionId, server: Server) -> Reply[ActionResultView]:
    """Pause an execution.

    Running nodes finish, no new ones start."""
    changed = await server.services.executions.pause(execution)
    return Reply(ActionResultView(execution_id=execution, status="paused", changed=changed))


@actions.post("/executions/{execution}/resume", requires="run", responses={409: "The execution has ended."})
async def resume_execution(execution: ExecutionId, server: Server) -> Reply[ActionResultView]:
    """Resume a paused execution.

    Continues where it was paused."""
    changed = await server.services.executions.resume(execution)
    return Reply(ActionResultView(execution_id=execution, status="running", changed=changed))


@actions.post("/executions/{execution}/retry", requires="run", responses=_RERUN_RESPONSES)
async def retry_execution(
    execution: ExecutionId,
    body: Annotated[
        RetryBody,
        Body(
            default_factory=RetryBody,
            openapi_examples=example({"failed_items": True, "split": "lines", "code": "HTTP_TIMEOUT"}),
        ),
    ],
    server: Server,
    idempotency_key: IdempotencyKey = None,
) -> Accepted[Started]:
    """Retry failed nodes in a new execution.

    Keeps the results of nodes that succeeded. With `failed_items` only the failed items of splits run again."""
    accepted = await server.services.executions.retry(
        execution,
        failed_items=body.failed_items,
        split=body.split,
        item=body.item,
        code=body.code,
        key=idempotency_key,
    )
    return accepted_reply(accepted)


@actions.post("/executions/{execution}/rerun", requires="run", responses=_RERUN_RESPONSES)
async def rerun_execution(
    execution: ExecutionId,
    body: Annotated[RerunBody, Body(openapi_examples=example({"node": "price", "item": "users:5"}))],
    server: Server,
    caller: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Accepted[Started]:
    """Rerun a node and all nodes after it in a new execution.

    In one item, or in all items. `input` takes the place of the output that the node received, also where later
    nodes mention it. With a `definition`, nodes that it adds or connects otherwise run too. `parameters`, `definition`
    and `pins` require the right `edit`."""
    if body.definition and body.version is not None:
        raise ApiError("body: takes either `version` or `definition`", code="BAD_BODY")
    if body.parameters or body.definition or body.pins or body.outlets:
        check_right(caller, "edit")
    if body.definition:
        check_definition(caller, body.definition)
    accepted = await server.services.executions.rerun(
        execution,
        body.node,
        item=body.item,
        key=idempotency_key,
        input=body.input or None,
        parameters=body.parameters or None,
        version=None if body.version is None else str(body.version),
        definition=body.definition or None,
        pins=Pins(body.pins, body.outlets),
    )
    return accepted_reply(accepted)


@actions.post(
    "/executions/{execution}/signals",
    requires="signal",
    responses={
        409: "The execution has ended, or several items wait and none is named.",
        422: "No node of the definition can wait for a signal of this name.",
    },
)
async def signal_execution(
    execution: ExecutionId,
    body: Annotated[SignalBody, Body(openapi_examples=example({"name": "approved", "value": {"by": "ada"}}))],
    server: Server,
    idempotency_key: IdempotencyKey = None,
) -> Reply[SignalResultView]:
    """Send a signal.

    Stored until a node waits for it; under an idempotency key it is delivered once."""
    result = await server.services.executions.signal(
        execution, body.name, body.value, key=idempotency_key, item=body.item
    )
    return Reply(SignalResultView(id=result.id, resumed=result.resumed))


waiting = Resource("waiting")

MAX_FOLDED_EVENTS = 5_000  # in longer executions texts with expressions are shown as they are written
MAX_PER_EXECUTION = 200
EVALUATION_NS = 5_000_000
_TEXTS = ("title", "description")


class WaitingQuery(Page):
    """Filters of the inbox."""

    kind: Literal["signal"] = "signal"
    workflow: Omittable[Id] = None


class WaitingItemQuery(QueryModel):
    """The item in which a node waits."""

    item: Omittable[Item] = None


@waiting.get("/waiting", requires="inbox")
async def list_waiting(
    query: Annotated[WaitingQuery, Query()], server: Server, caller: Caller
) -> Reply[WaitingPage]:
    """List what waits for a signal.

    In all executions that have not ended; `limit` counts executions."""
    wanted = ExecutionFilter(
        statuses=("running", "paused"), workflow=query.workflow, scopes=caller.scopes, waiting=True
    )
    page = await server.reader.search(wanted, after=query.cursor, limit=query.limit)
    await check_cursor(server.reader, query.cursor, page.executions)
    found: list[WaitingView] = []
    for summary in page.executions:
        overview = await server.overviews.of(summary.id)
        waits = list(overview.waiting())[:MAX_PER_EXECUTION]
        found += [await _view(server, summary, overview, *each) for each in waits]
    return Reply(WaitingPage(waiting=found, next=page.next))


@waiting.get("/waiting/{execution}/{node}", requires="inbox")
async def get_waiting(
    execution: ExecutionId, node: NodeId, query: Annotated[WaitingItemQuery, Query()], server: Server
) -> Reply[WaitingView]:
    """Get what a node waits for.

    In one item, if the node is inside a split; not found unless it waits for a signal now."""
    plan = await server.reader.plan(execution)
    path = parse_scope(query.item, plan)
    overview = await server.overviews.of(execution)
    for number, place, run in overview.waiting():
        summary = await server.reader.execution(execution)
        if (plan.ids[number], place) == (node, path) and summary is not None:
            return Reply(await _view(server, summary, overview, number, place, run))
    raise NodeRunNotFoundError(f"`{node}` does not wait for a signal in this item")


async def _view(
    server: ServerContext, summary: Summary, overview: Overview, node: int, path: Path, run: Run
) -> WaitingView:
    plan = overview.plan
    given = dict(plan.definition.nodes[node].parameters)
    if overview.number <= MAX_FOLDED_EVENTS and any(_is_dynamic(given.get(name)) for name in _TEXTS):
        given |= await _resolved(server, summary.id, plan, node, path)
    return WaitingView(
        execution_id=summary.id,
        workflow_id=summary.workflow,
        node_id=plan.ids[node],
        item=path_text(path, plan.ids).lstrip("/") or None,
        signal=run.signal or "",
        since=moment(run.since or run.began),
        until=iso(run.due),
        labels=summary.labels,
        title=_text(given.get("title")),
        description=_text(given.get("description")),
        schema=given.get("schema"),
        choices=given.get("choices"),
    )


def _is_dynamic(value: object) -> bool:
    return isinstance(value, str) and ("$" in value or "{{" in value)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


async def _resolved(
    server: ServerContext, execution: str, plan: Plan, node: int, path: Path
) -> dict[str, Any]:
    """Return the texts of a waiting node with their expressions evaluated; none if that is not possible."""
    _, state = await server.reader.state(execution, server.clock.now(), server.engine.backend.state.peek)
    scope_state = state.scopes.get(path)
    live = None if scope_state is None else scope_state.live.get(node)
    if live is None:
        return {}
    backend, accepted = server.engine.backend, await server.reader.accepted(execution)
    data = ExecutionData(
        accepted, plan, backend.journal, backend.blob, Cache(CACHE_BYTES), max_decoded=MAX_DECODED_BYTES
    )
    reader = data.reader()
    while True:
        try:
            scope = reader.scope(live.token, server.clock.now() / 1000, "")
            scope[METER] = Meter(EVALUATION_NS, _exceeded)
            values = plan.nodes[node].parameters.resolve(scope)
            return {name: values.get(name) for name in _TEXTS}
        except ValueNotLoaded as missing:
            await data.load(missing.what, reader)
        except RuneError:
            return {}


def _exceeded(cost: int) -> int:
    raise LimitExceededError("evaluation of a text", EVALUATION_NS)
