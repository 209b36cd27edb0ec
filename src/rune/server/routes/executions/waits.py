"""Routes for the inbox: what waits for a signal, in all executions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from starlette.responses import Response

from rune.core.execution.token import Path, path_text
from rune.core.expr import Meter
from rune.core.expr.budget import METER
from rune.core.plan.model import Plan
from rune.errors import LimitExceededError, RuneError
from rune.ports.queries import ExecutionFilter, Summary
from rune.runtime.clock import iso
from rune.runtime.queries.history import CACHE_BYTES
from rune.runtime.queries.overview import Overview, Run
from rune.runtime.values import Cache, ExecutionData, ValueNotLoaded
from rune.server.access.auth import requires
from rune.server.context import ServerContext
from rune.server.responses import Reply
from rune.server.routing import (
    Caller,
    ExecutionId,
    Id,
    Item,
    NodeId,
    Omittable,
    Page,
    QueryModel,
    Server,
    check_cursor,
    resource,
)
from rune.server.schemas import View, moment
from rune.server.views.node_runs import NodeRunNotFoundError, parse_scope

waiting = resource("waiting")

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


class WaitingView(View, frozen=True, kw_only=True):
    """A node that waits for a signal. `until` is when it stops waiting; null: never. `item` is null outside of splits.
    `schema` and `choices` describe the value of the signal: with `choices` it is an object with one of them as
    `choice`."""

    execution_id: str
    workflow_id: str
    node_id: str
    item: str | None
    signal: str
    since: str
    until: str | None
    labels: dict[str, str]
    title: str | None
    description: str | None
    schema: dict[str, Any] | None
    choices: list[str] | None


class WaitingPage(View, frozen=True, kw_only=True):
    """A page of the inbox, newest executions first. A page may be empty and still have a `next` cursor."""

    waiting: list[WaitingView]
    next: str | None


@waiting.get(
    "/waiting",
    summary="List what waits for a signal",
    dependencies=[requires("inbox")],
    response_model=WaitingPage,
)
async def list_waiting(query: Annotated[WaitingQuery, Query()], server: Server, caller: Caller) -> Response:
    """In all executions that have not ended; `limit` counts executions."""
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


@waiting.get(
    "/waiting/{execution}/{node}",
    summary="Get what a node waits for",
    dependencies=[requires("inbox")],
    response_model=WaitingView,
)
async def get_waiting(
    execution: ExecutionId, node: NodeId, query: Annotated[WaitingItemQuery, Query()], server: Server
) -> Response:
    """In one item, if the node is inside a split; not found unless it waits for a signal now."""
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
    _, state = await server.reader.state(execution, server.clock.now())
    scope_state = state.scopes.get(path)
    live = None if scope_state is None else scope_state.live.get(node)
    if live is None:
        return {}
    backend, accepted = server.engine.backend, await server.reader.accepted(execution)
    data = ExecutionData(accepted, plan, backend.journal, backend.blob, Cache(CACHE_BYTES))
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
