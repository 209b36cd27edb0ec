"""Routes that start executions, read them and compare two of them. A start is durable before its response is sent."""

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
MAX_START_BYTES = LIMITS.payload_bytes + LIMITS.definition_bytes + 64 * 1024

START_RESPONSES = {
    200: "The idempotency key was used before; this is the execution that it started.",
    429: "A start limit is exceeded; `Retry-After` is in seconds.",
}

LabelName = Annotated[str, Meta(min_length=1, max_length=128)]
LabelValue = Annotated[str, Meta(max_length=1_024)]
Labels = Annotated[dict[LabelName, LabelValue], Meta(max_length=MAX_LABELS)]
Priority = Annotated[int, Meta(ge=0, le=10)]
Which = Annotated[str, Meta(min_length=1, max_length=128, description="A version number or an alias.")]
Id = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,128}$")]
executions = Router("executions")
comparing = Router("executions")
BATCH_SIZE = 200  # executions per read of a search
MAX_SCANNED = 2_000  # executions per search
MAX_COMPARED_RUNS = 20_000
_COMPARED_FIELDS = ("status", "attempts", "output", "error")
Status = Literal["running", "paused", "completed", "failed", "halted", "cancelled"]
Label = Annotated[str, Meta(max_length=1_200, pattern="=", description="`name=value`; may be repeated.")]


def _nothing() -> msgspec.Raw:
    return msgspec.Raw(b"{}")


class StartBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a start. All are optional."""

    input: msgspec.Raw = msgspec.field(default_factory=_nothing)
    version: Which | None = None
    labels: Labels = {}
    priority: Priority | None = None
    fake_time: bool = False


class AnyStartBody(StartBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A start of a stored workflow, or of a definition that is not stored as a workflow."""

    workflow: Id | None = None
    definition: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


def key_of(call: RequestContext) -> str | None:
    """Return the idempotency key of a request."""
    key = call.header("idempotency-key")
    if key is not None and not (0 < len(key) <= 255 and key.isascii() and key.isprintable()):
        raise ApiError("Idempotency-Key: must have 1 to 255 printable characters", code="BAD_HEADER")
    return key


def accepted_reply(accepted: ExecutionRecord, *, replayed: bool = False) -> Response:
    """Respond with an execution that was accepted, by this request or by an earlier one with the same key."""
    location = {"Location": f"{PREFIX}/executions/{accepted.id}"}
    return Reply(started(accepted, replayed=replayed), 200 if replayed else 202, location)


@starts(
    "POST",
    "/workflows/{workflow}/executions",
    "Start a stored workflow",
    permission="run",
    body=StartBody,
    limit=MAX_START_BYTES,
    optional=True,
    response=Started,
    status=202,
    responses=START_RESPONSES,
    headers=("Idempotency-Key",),
    example={"input": {"name": "World"}, "version": "stable", "labels": {"customer": "7"}},
)
async def start_workflow(call: RequestContext) -> Response:
    """Starts the given version, or the latest."""
    return await _start(call, call.path["workflow"], call.body)


@starts(
    "POST",
    "/executions",
    "Start a stored workflow or a definition",
    permission="run",
    body=AnyStartBody,
    limit=MAX_START_BYTES,
    response=Started,
    status=202,
    responses=START_RESPONSES,
    headers=("Idempotency-Key",),
    example={"workflow": "hello", "input": {"name": "World"}},
)
async def start_anything(call: RequestContext) -> Response:
    """Requires either `workflow` or `definition`."""
    body: AnyStartBody = call.body
    definition = bytes(body.definition)
    # Sending a definition amounts to editing one.
    if definition:
        call.require("edit")
        check_definition(call.principal, definition)
    if (body.workflow is None) == (not definition):
        raise ApiError("body: requires either `workflow` or `definition`", code="BAD_BODY")
    if body.workflow is not None:
        return await _start(call, body.workflow, body)
    if body.version is not None or body.priority is not None:
        raise ApiError("body: `version` and `priority` require `workflow`", code="BAD_BODY")
    options, id = _start_options(call, body)
    accepted = await call.server.services.executions.start_definition(
        definition, bytes(body.input), options, execution=id
    )
    return accepted_reply(accepted, replayed=id is not None and accepted.id != id)


async def _start(call: RequestContext, workflow: str, body: StartBody) -> Response:
    if not call.principal.sees(workflow):
        raise workflow_not_found(workflow, (), LATEST)
    options, id = _start_options(call, body)
    accepted = await call.server.services.executions.start(
        workflow, body.version, bytes(body.input), options, priority=body.priority, execution=id
    )
    return accepted_reply(accepted, replayed=id is not None and accepted.id != id)


def _start_options(call: RequestContext, body: StartBody) -> tuple[StartOptions, str | None]:
    """Return the options of a start. With an idempotency key the execution id is chosen here; if the start returns
    another id, an earlier request used the key."""
    key = key_of(call)
    options = StartOptions(key=key, labels=body.labels, fake_time=body.fake_time)
    return options, None if key is None else new_execution_id()


class ExecutionQuery(Page, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters of the list of executions."""

    status: Status | None = None
    workflow: Id | None = None
    label: tuple[Label, ...] = ()
    q: Annotated[str, Meta(min_length=1, max_length=200)] | None = None


class WaitQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a read."""

    wait: Annotated[float, Meta(ge=0, le=60, description="Seconds to wait for the end of the execution.")] = 0


@executions(
    "GET",
    "/executions",
    "List executions, newest first",
    permission="view",
    query=ExecutionQuery,
    response=ExecutionPage,
)
async def list_executions(call: RequestContext) -> Response:
    """With `label` or `q` a page may hold fewer than `limit`, because each request scans a limited number; follow
    `next`."""
    query: ExecutionQuery = call.query
    if not query.label and query.q is None and not call.principal.scopes:
        found = await call.server.reader.executions(_filter(query), after=query.cursor, limit=query.limit + 1)
        await check_cursor(call.server.reader, query.cursor, found)
        more = len(found) > query.limit
        page = found[: query.limit]
        return _page(page, page[-1].id if more else None)
    return await _search(call.server, query, call.principal)


async def _search(server: ServerContext, query: ExecutionQuery, principal: Principal) -> Response:
    labels = dict(each.split("=", 1) for each in query.label)
    page: list[Summary] = []
    after, scanned = query.cursor, 0
    while scanned < MAX_SCANNED:
        found = await server.reader.executions(_filter(query), after=after, limit=BATCH_SIZE)
        await check_cursor(server.reader, query.cursor, found)
        for each in found:
            after = each.id
            if principal.sees(each.workflow) and _matches(each, labels, query.q):
                page.append(each)
                if len(page) == query.limit:
                    return _page(page, after)
        scanned += BATCH_SIZE
        if len(found) < BATCH_SIZE:
            return _page(page, None)
    return _page(page, after)


def _filter(query: ExecutionQuery) -> ExecutionFilter:
    return ExecutionFilter(status=query.status, workflow=query.workflow)


def _matches(each: Summary, labels: dict[str, str], text: str | None) -> bool:
    if any(each.labels.get(name) != value for name, value in labels.items()):
        return False
    if text is None:
        return True
    low = text.lower()
    texts = (each.id, each.workflow, *each.labels.values(), each.error.code if each.error else "")
    return any(low in part.lower() for part in texts)


def _page(found: list[Summary], following: str | None) -> Response:
    return Reply(ExecutionPage(executions=[execution_view(each) for each in found], next=following))


async def summary_of(server: ServerContext, execution: str) -> Summary:
    """Return an execution, or raise if it does not exist."""
    found = await server.reader.execution(execution)
    if found is None:
        raise ExecutionNotFoundError(f"no execution has the id {execution}")
    return found


@executions(
    "GET",
    "/executions/{execution}",
    "Get an execution",
    permission="view",
    query=WaitQuery,
    response=ExecutionDetail,
)
async def get_execution(call: RequestContext) -> Response:
    """With `wait`, responds when the execution has ended or the time is over."""
    server, id = call.server, call.path["execution"]
    summary = await summary_of(server, id)
    if call.query.wait and summary.ended_at is None:
        await server.feeds.until_end(id, call.query.wait)
        summary = await summary_of(server, id)
    return Reply(execution_detail(summary, await server.reader.accepted(id)))


@executions(
    "GET",
    "/executions/{execution}/document",
    "Get an ended execution as one document",
    permission="view",
    response=Any,
)
async def get_document(call: RequestContext) -> Response:
    """The document that `rune run --json` prints. Read long executions in pages instead."""
    return Reply(await (await call.server.reader.history(call.path["execution"])).document())


@executions(
    "GET", "/executions/{execution}/output", "Get the output of an execution", permission="view", response=Any
)
async def get_output(call: RequestContext) -> Response:
    """The value of its output node, or the values of its leaf nodes; null unless it completed."""
    summary = await summary_of(call.server, call.path["execution"])
    if summary.ended_at is None:
        raise ApiError(f"{summary.id} has not ended", code="NOT_ENDED")
    return Reply(await (await call.server.reader.history(summary.id)).output())


@executions(
    "GET", "/executions/{execution}/input", "Get the input of an execution", permission="view", response=Any
)
async def get_input(call: RequestContext) -> Response:
    """The start payload."""
    return Reply((await call.server.reader.accepted(call.path["execution"])).input)


@executions(
    "GET",
    "/executions/{execution}/explain",
    "Explain what an execution is waiting for",
    permission="view",
    response=Explanation,
)
async def explain(call: RequestContext) -> Response:
    """For each waiting node: which inputs arrived, were skipped or are missing, what it waits for and until when."""
    server, id = call.server, call.path["execution"]
    summary = await summary_of(server, id)
    plan, state = await server.reader.state(id, server.clock.now())
    return Reply(
        Explanation(
            execution_id=id,
            workflow_id=summary.workflow,
            status="paused" if state.paused_at is not None else summary.status,
            error=error_view(summary.error),
            waiting=why(plan, state),
        )
    )


class RunChange(View, frozen=True, kw_only=True):
    """A node run that differs in one lineage; null on the side where the node has not ended."""

    node_id: str
    lineage: str
    fields: list[str]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class Difference(View, frozen=True, kw_only=True):
    """The differences between two executions."""

    before: str
    after: str
    status: tuple[str, str]
    same_input: bool
    definition: list[Change]
    nodes: list[RunChange]


@comparing(
    "GET",
    "/executions/{execution}/diff/{other}",
    "Compare two executions",
    permission="view",
    response=Difference,
)
async def compare(call: RequestContext) -> Response:
    """Compares the definitions, the inputs and all node runs."""
    server = call.server
    pair = [await summary_of(server, call.path[name]) for name in ("execution", "other")]
    old, new = [await definition_of(server, each.hash) for each in pair]
    accepted = [await server.reader.accepted(each.id) for each in pair]
    before, after = [await _runs(server, each.id) for each in pair]
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


async def _runs(server: ServerContext, execution: str) -> dict[tuple[str, str], dict[str, Any]]:
    found = await server.node_runs.all(execution, MAX_COMPARED_RUNS)
    if found is None:
        raise LimitExceededError("node runs of a compared execution", MAX_COMPARED_RUNS)
    return {(each.node_id, _lineage(each)): _run_fields(each) for each in found}


def _lineage(run: NodeRun) -> str:
    return "".join(f"/{each.split_node_id}:{each.item_index}" for each in run.lineage) or "/"


def _run_fields(run: NodeRun) -> dict[str, Any]:
    output = None if run.output is None else msgspec.json.decode(run.output)
    error = error_document(run.error)
    return {"status": run.status, "attempts": run.attempts, "output": output, "error": error}


def _change(key: tuple[str, str], before: dict[str, Any] | None, after: dict[str, Any] | None) -> RunChange:
    differ = [name for name in _COMPARED_FIELDS if (before or {}).get(name) != (after or {}).get(name)]
    return RunChange(node_id=key[0], lineage=key[1], fields=differ, before=before, after=after)
