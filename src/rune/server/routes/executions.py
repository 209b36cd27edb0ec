"""Starts: what is accepted is durable before it is answered.

Executions: what there is, what became of it, and why it is where it is.

Two executions side by side.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rune.core.definition.diff import Change, difference
from rune.core.execution.explain import explain as why
from rune.core.limits import LIMITS
from rune.core.permissions import Principal
from rune.errors import LimitExceededError
from rune.ports.journal import ExecutionRecord
from rune.ports.queries import ExecutionFilter, NodeRun, Summary
from rune.ports.workflows import LATEST, workflow_not_found
from rune.runtime.lifecycle.launcher import StartOptions, new_execution_id
from rune.runtime.queries.history import error_document
from rune.runtime.values import ExecutionNotFoundError
from rune.server.auth import check_definition
from rune.server.context import ServerContext
from rune.server.endpoints import PREFIX, RequestContext, Router
from rune.server.requests import Page, check_cursor
from rune.server.responses import ApiError, Reply
from rune.server.routes.workflows import definition_of
from rune.server.schemas import (
    ExecutionDetail,
    ExecutionPage,
    Explanation,
    Started,
    View,
    error_view,
    execution_detail,
    execution_view,
    started,
)

starts = Router("starts")

MAX_LABELS = 64
START_BYTES = LIMITS.payload_bytes + LIMITS.definition_bytes + 64 * 1024

ALSO = {
    200: "The key was used before: this is what it started.",
    429: "A limit refuses it; `Retry-After` says for how many seconds.",
}

LabelName = Annotated[str, Meta(min_length=1, max_length=128)]
LabelValue = Annotated[str, Meta(max_length=1_024)]
Labels = Annotated[dict[LabelName, LabelValue], Meta(max_length=MAX_LABELS)]
Priority = Annotated[int, Meta(ge=0, le=10)]
Which = Annotated[str, Meta(min_length=1, max_length=128, description="A version number or an alias.")]
Id = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,128}$")]


def _nothing() -> msgspec.Raw:
    return msgspec.Raw(b"{}")


class StartBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to start a stored workflow. Nothing has to be given."""

    input: msgspec.Raw = msgspec.field(default_factory=_nothing)
    version: Which | None = None
    labels: Labels = {}
    priority: Priority | None = None
    fake_time: bool = False


class AnyStartBody(StartBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to start a stored workflow by its name, or a definition that is stored nowhere."""

    workflow: Id | None = None
    definition: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


def key_of(call: RequestContext) -> str | None:
    """The key under which something is done once."""
    key = call.header("idempotency-key")
    if key is not None and not (0 < len(key) <= 255 and key.isascii() and key.isprintable()):
        raise ApiError("Idempotency-Key: 1 to 255 printable characters", code="BAD_HEADER")
    return key


def accepted_reply(accepted: ExecutionRecord, *, replayed: bool = False) -> Response:
    """An execution that was accepted, now or before."""
    place = {"Location": f"{PREFIX}/executions/{accepted.id}"}
    return Reply(started(accepted, replayed=replayed), 200 if replayed else 202, place)


@starts(
    "POST",
    "/workflows/{workflow}/executions",
    "Start a stored workflow",
    need="run",
    body=StartBody,
    limit=START_BYTES,
    optional=True,
    answer=Started,
    status=202,
    also=ALSO,
    headers=("Idempotency-Key",),
    example={"input": {"name": "World"}, "version": "stable", "labels": {"customer": "7"}},
)
async def start_workflow(call: RequestContext) -> Response:
    """Start the version that is named, or the latest."""
    return await _start(call, call.path["workflow"], call.body)


@starts(
    "POST",
    "/executions",
    "Start a workflow by its name, or a definition",
    need="run",
    body=AnyStartBody,
    limit=START_BYTES,
    answer=Started,
    status=202,
    also=ALSO,
    headers=("Idempotency-Key",),
    example={"workflow": "hello", "input": {"name": "World"}},
)
async def start_anything(call: RequestContext) -> Response:
    """Either `workflow` or `definition` says what."""
    body: AnyStartBody = call.body
    definition = bytes(body.definition)
    if definition:  # whoever brings a definition has written one
        call.require("edit")
        check_definition(call.principal, definition)
    if (body.workflow is None) == (not definition):
        raise ApiError("body: give `workflow` or `definition`, one of them", code="BAD_BODY")
    if body.workflow is not None:
        return await _start(call, body.workflow, body)
    if body.version is not None or body.priority is not None:
        raise ApiError("body: `version` and `priority` belong to a stored workflow", code="BAD_BODY")
    options, name = _named(call, body)
    accepted = await call.master.services.executions.start_definition(
        definition, bytes(body.input), options, execution=name
    )
    return accepted_reply(accepted, replayed=name is not None and accepted.id != name)


async def _start(call: RequestContext, workflow: str, body: StartBody) -> Response:
    if not call.principal.sees(workflow):
        raise workflow_not_found(workflow, (), LATEST)
    options, name = _named(call, body)
    accepted = await call.master.services.executions.start(
        workflow, body.version, bytes(body.input), options, priority=body.priority, execution=name
    )
    return accepted_reply(accepted, replayed=name is not None and accepted.id != name)


def _named(call: RequestContext, body: StartBody) -> tuple[StartOptions, str | None]:
    """The options of a start. One with a key is given its id here, by which an earlier one is told from it."""
    key = key_of(call)
    options = StartOptions(key=key, labels=body.labels, fake_time=body.fake_time)
    return options, None if key is None else new_execution_id()


executions = Router("executions")

AT_ONCE = 200
MAX_SCANNED = 2_000

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
async def list_executions(call: RequestContext) -> Response:
    """Labels and `q` are compared one by one: such a page may be short, and `next` still leads on."""
    query: ExecutionQuery = call.query
    if not query.label and query.q is None and not call.principal.scopes:
        found = await call.master.reader.executions(_wanted(query), after=query.cursor, limit=query.limit + 1)
        await check_cursor(call.master.reader, query.cursor, found)
        more = len(found) > query.limit
        page = found[: query.limit]
        return _page(page, page[-1].id if more else None)
    return await _searched(call.master, query, call.principal)


async def _searched(master: ServerContext, query: ExecutionQuery, principal: Principal) -> Response:
    wanted = dict(each.split("=", 1) for each in query.label)
    page: list[Summary] = []
    after, looked_at = query.cursor, 0
    while looked_at < MAX_SCANNED:
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


def _wanted(query: ExecutionQuery) -> ExecutionFilter:
    return ExecutionFilter(status=query.status, workflow=query.workflow)


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


async def summary_of(master: ServerContext, execution: str) -> Summary:
    """An execution that must be there."""
    found = await master.reader.execution(execution)
    if found is None:
        raise ExecutionNotFoundError(f"no execution has the id {execution}")
    return found


@executions(
    "GET",
    "/executions/{execution}",
    "One execution, now or once it has ended",
    need="view",
    query=WaitQuery,
    answer=ExecutionDetail,
)
async def get_execution(call: RequestContext) -> Response:
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
async def get_document(call: RequestContext) -> Response:
    """What `rune run --json` prints. Long executions are better read in pages."""
    return Reply(await (await call.master.reader.history(call.path["execution"])).document())


@executions("GET", "/executions/{execution}/output", "What an execution came to", need="view", answer=Any)
async def get_output(call: RequestContext) -> Response:
    """The value of its output node, or those of its leaves; null unless it has completed."""
    summary = await summary_of(call.master, call.path["execution"])
    if summary.ended_at is None:
        raise ApiError(f"{summary.id} has not ended", code="NOT_ENDED")
    return Reply(await (await call.master.reader.history(summary.id)).output())


@executions(
    "GET", "/executions/{execution}/input", "What an execution was started with", need="view", answer=Any
)
async def get_input(call: RequestContext) -> Response:
    """The start payload."""
    return Reply((await call.master.reader.accepted(call.path["execution"])).input)


@executions(
    "GET",
    "/executions/{execution}/explain",
    "Why an execution is where it is",
    need="view",
    answer=Explanation,
)
async def explain(call: RequestContext) -> Response:
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


comparing = Router("executions")

MAX_COMPARED_RUNS = 20_000
_SAME = ("status", "attempts", "output", "error")


class RunChange(View, frozen=True, kw_only=True):
    """A node that ended otherwise in one lineage; null where it did not end at all."""

    node_id: str
    lineage: str
    fields: list[str]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class Difference(View, frozen=True, kw_only=True):
    """What is different between two executions."""

    before: str
    after: str
    status: tuple[str, str]
    same_input: bool
    definition: list[Change]
    nodes: list[RunChange]


@comparing(
    "GET",
    "/executions/{execution}/diff/{other}",
    "What is different between two executions",
    need="view",
    answer=Difference,
)
async def compare(call: RequestContext) -> Response:
    """Definition, start payload and what became of each node in each lineage."""
    master = call.master
    pair = [await summary_of(master, call.path[name]) for name in ("execution", "other")]
    old, new = [await definition_of(master, each.hash) for each in pair]
    accepted = [await master.reader.accepted(each.id) for each in pair]
    before, after = [await _runs(master, each.id) for each in pair]
    changes = [_change(key, before.get(key), after.get(key)) for key in dict.fromkeys((*before, *after))]
    return Reply(
        Difference(
            before=pair[0].id,
            after=pair[1].id,
            status=(pair[0].status, pair[1].status),
            same_input=accepted[0].input == accepted[1].input,
            definition=list(difference(old, new)),
            nodes=[each for each in changes if each.fields],
        )
    )


async def _runs(master: ServerContext, execution: str) -> dict[tuple[str, str], dict[str, Any]]:
    found = await master.runs.all(execution, MAX_COMPARED_RUNS)
    if found is None:
        raise LimitExceededError("node runs of an execution to be compared", MAX_COMPARED_RUNS)
    return {(each.node_id, _lineage(each)): _said(each) for each in found}


def _lineage(run: NodeRun) -> str:
    return "".join(f"/{each.split_node_id}:{each.item_index}" for each in run.lineage) or "/"


def _said(run: NodeRun) -> dict[str, Any]:
    output = None if run.output is None else msgspec.json.decode(run.output)
    error = error_document(run.error)
    return {"status": run.status, "attempts": run.attempts, "output": output, "error": error}


def _change(key: tuple[str, str], before: dict[str, Any] | None, after: dict[str, Any] | None) -> RunChange:
    differ = [name for name in _SAME if (before or {}).get(name) != (after or {}).get(name)]
    return RunChange(node_id=key[0], lineage=key[1], fields=differ, before=before, after=after)
