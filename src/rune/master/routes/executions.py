"""Executions: what there is, what became of it, and why it is where it is."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rune.core.explain import explain as why
from rune.core.rights import Principal
from rune.master.operation import Call, Resource
from rune.master.paging import Page, check_cursor
from rune.master.problems import ApiError
from rune.master.reply import Reply
from rune.master.routes.starts import Id
from rune.master.service import Master
from rune.master.views import (
    ExecutionDetail,
    ExecutionPage,
    Explanation,
    error_view,
    execution_detail,
    execution_view,
)
from rune.ports.store import Summary, Wanted
from rune.runtime.books import UnknownExecution

executions = Resource("executions")

AT_ONCE = 200
MOST_LOOKED_AT = 2_000

Status = Literal["running", "paused", "completed", "failed", "halted", "cancelled"]
Label = Annotated[str, Meta(max_length=1_200, pattern="=", description="`name=value`; may be given again.")]


class ExecutionQuery(Page, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which executions are wanted."""

    status: Status | None = None
    workflow: Id | None = None
    label: tuple[Label, ...] = ()
    q: Annotated[str, Meta(min_length=1, max_length=200)] | None = None


class WaitQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long to wait for the end."""

    wait: Annotated[float, Meta(ge=0, le=60, description="Seconds to wait for its end.")] = 0


@executions(
    "GET",
    "/executions",
    "List executions, newest first",
    need="view",
    query=ExecutionQuery,
    answer=ExecutionPage,
)
async def list_executions(call: Call) -> Response:
    """Labels and `q` are compared one by one: such a page may be short, and `next` still leads on."""
    query: ExecutionQuery = call.query
    if not query.label and query.q is None and not call.principal.scopes:
        found = await call.master.reader.executions(_wanted(query), after=query.cursor, limit=query.limit + 1)
        await check_cursor(call.master.reader, query.cursor, found)
        more = len(found) > query.limit
        page = found[: query.limit]
        return _page(page, page[-1].id if more else None)
    return await _searched(call.master, query, call.principal)


async def _searched(master: Master, query: ExecutionQuery, principal: Principal) -> Response:
    wanted = dict(each.split("=", 1) for each in query.label)
    page: list[Summary] = []
    after, looked_at = query.cursor, 0
    while looked_at < MOST_LOOKED_AT:
        found = await master.reader.executions(_wanted(query), after=after, limit=AT_ONCE)
        await check_cursor(master.reader, query.cursor, found)
        for each in found:
            after = each.id
            if principal.sees(each.workflow) and _fits(each, wanted, query.q):
                page.append(each)
                if len(page) == query.limit:
                    return _page(page, after)
        looked_at += AT_ONCE
        if len(found) < AT_ONCE:
            return _page(page, None)
    return _page(page, after)


def _wanted(query: ExecutionQuery) -> Wanted:
    return Wanted(status=query.status, workflow=query.workflow)


def _fits(each: Summary, labels: dict[str, str], text: str | None) -> bool:
    if any(each.labels.get(name) != value for name, value in labels.items()):
        return False
    if text is None:
        return True
    low = text.lower()
    said = (each.id, each.workflow, *each.labels.values(), each.error.code if each.error else "")
    return any(low in part.lower() for part in said)


def _page(found: list[Summary], following: str | None) -> Response:
    return Reply(ExecutionPage(executions=[execution_view(each) for each in found], next=following))


async def summary_of(master: Master, execution: str) -> Summary:
    """An execution that must be there."""
    found = await master.reader.execution(execution)
    if found is None:
        raise UnknownExecution(f"no execution has the id {execution}")
    return found


@executions(
    "GET",
    "/executions/{execution}",
    "One execution, now or once it has ended",
    need="view",
    query=WaitQuery,
    answer=ExecutionDetail,
)
async def get_execution(call: Call) -> Response:
    """With `wait` the answer comes when it has ended, or when the time is over."""
    master, id = call.master, call.path["execution"]
    summary = await summary_of(master, id)
    if call.query.wait and summary.ended_at is None:
        await master.watches.until_end(id, call.query.wait)
        summary = await summary_of(master, id)
    return Reply(execution_detail(summary, await master.reader.accepted(id)))


@executions(
    "GET",
    "/executions/{execution}/document",
    "All of an ended execution in one document",
    need="view",
    answer=Any,
)
async def get_document(call: Call) -> Response:
    """What `rune run --json` prints. Long executions are better read in pages."""
    return Reply(await (await call.master.reader.history(call.path["execution"])).document())


@executions("GET", "/executions/{execution}/output", "What an execution came to", need="view", answer=Any)
async def get_output(call: Call) -> Response:
    """The value of its output node, or those of its leaves; null unless it has completed."""
    summary = await summary_of(call.master, call.path["execution"])
    if summary.ended_at is None:
        raise ApiError(f"{summary.id} has not ended", code="NOT_ENDED")
    return Reply(await (await call.master.reader.history(summary.id)).output())


@executions(
    "GET", "/executions/{execution}/input", "What an execution was started with", need="view", answer=Any
)
async def get_input(call: Call) -> Response:
    """The start payload."""
    return Reply((await call.master.reader.accepted(call.path["execution"])).input)


@executions(
    "GET",
    "/executions/{execution}/explain",
    "Why an execution is where it is",
    need="view",
    answer=Explanation,
)
async def explain(call: Call) -> Response:
    """Who arrived, who was skipped, who is missing, what is waited for and until when."""
    master, id = call.master, call.path["execution"]
    summary = await summary_of(master, id)
    plan, state = await master.reader.state(id, master.clock.now())
    return Reply(
        Explanation(
            execution_id=id,
            workflow_id=summary.workflow,
            status="paused" if state.paused_at is not None else summary.status,
            error=error_view(summary.error),
            waiting=why(plan, state),
        )
    )
