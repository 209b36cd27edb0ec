"""Routes for bulk jobs: one action on many executions, in the background."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Annotated

import msgspec
from fastapi import Body, Path, Query
from pydantic import ConfigDict, Field

from rune.api.bulk import BulkList, BulkOutcomePage, BulkOutcomeView, BulkPreview, BulkView
from rune.core.permissions import Principal
from rune.ports.clock import moment
from rune.ports.queries import BulkAction, BulkJob, BulkOutcome, Outcome, Summary
from rune.runtime.execution_data import ExecutionNotFoundError
from rune.runtime.plan_cache import DefinitionNotFoundError
from rune.runtime.services.bulk import MAX_BULK_TARGETS, BulkJobNotFoundError
from rune.server.context import ServerContext
from rune.server.resource import Resource, example
from rune.server.responses import Accepted, ApiError, Reply
from rune.server.routes.executions.executions import ExecutionFilters, execution_filter
from rune.server.routing import (
    PREFIX,
    Caller,
    Id,
    IdempotencyKey,
    JsonBody,
    Limit,
    Omittable,
    Page,
    QueryModel,
    Server,
    offset,
)

bulk = Resource("bulk jobs")

MAX_IDS = 1_000
BATCH_SIZE = 500  # executions per read
OPEN = frozenset({"running", "paused"})
PLANNED = frozenset({"retry", "retry_failed_items", "requeue"})
"""The actions that start an execution, for which its definition is compiled here."""

JobId = Annotated[str, Path(pattern=r"^b[0-9a-f]{24}$", description="The id of a bulk job.")]


class BulkFilter(ExecutionFilters):
    """The filters of the list of executions. At least one has to be given."""

    # Times are sent as text, which a strict model would reject.
    model_config = ConfigDict(extra="forbid", frozen=True)


class BulkSelection(JsonBody):
    """An action and its executions: by id, or all that match a filter, newest first and at most `limit`."""

    action: BulkAction
    ids: Annotated[list[Id], Field(min_length=1, max_length=MAX_IDS)] | None = None
    filter: BulkFilter | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_BULK_TARGETS)] = 1_000


class BulkBody(BulkSelection):
    """A bulk job."""

    reason: Annotated[str, Field(max_length=2_000, description="The reason of a cancellation.")] = ""


class BulkListQuery(QueryModel):
    """The number of jobs."""

    limit: Limit = 50


class OutcomeQuery(Page):
    """Which outcomes to list."""

    outcome: Omittable[Outcome] = None


_EXAMPLE = {"action": "retry", "filter": {"code": "HTTP_TIMEOUT", "since": "2026-11-15T00:00:00Z"}}


@bulk.post("/bulk", requires="run", responses={200: "The idempotency key was used before; this is the job."})
async def create_bulk_job(
    body: Annotated[BulkBody, Body(openapi_examples=example(_EXAMPLE))],
    server: Server,
    caller: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Accepted[BulkView] | Reply[BulkView]:
    """Act on many executions.

    Selects the executions now and processes them in the background, on any server, also after a crash. Requires
    either `ids` or a `filter` that is not empty."""
    found, _ = await _select(server, caller, body)
    before = server.clock.now()
    job = await server.services.bulk.create(
        body.action,
        [each.id for each in found],
        reason=body.reason,
        filter="" if body.filter is None else body.filter.model_dump_json(exclude_defaults=True),
        key=idempotency_key,
        request=body.model_dump_json(exclude_defaults=True),
    )
    location = {"Location": f"{PREFIX}/bulk/{job.id}"}
    return (Accepted if job.at >= before else Reply)(_view(job), location)


@bulk.post("/bulk/preview", requires="view")
async def preview_bulk_job(
    body: Annotated[BulkSelection, Body(openapi_examples=example(_EXAMPLE))],
    server: Server,
    caller: Caller,
) -> Reply[BulkPreview]:
    """Count the executions of a bulk job.

    Changes nothing."""
    found, more = await _select(server, caller, body)
    eligible = [each for each in found if _eligible(body.action, each)]
    if body.action in PLANNED:
        unknown = await _without_types(server, {each.hash for each in eligible})
        eligible = [each for each in eligible if each.hash not in unknown]
    return Reply(
        BulkPreview(
            total=len(found),
            eligible=len(eligible),
            by_status=dict(sorted(Counter(each.status for each in found).items())),
            more=more,
        )
    )


@bulk.get("/bulk", requires="view")
async def list_bulk_jobs(
    query: Annotated[BulkListQuery, Query()], server: Server, caller: Caller
) -> Reply[BulkList]:
    """List bulk jobs.

    Newest first; a key with scopes sees its own. Jobs are kept for 30 days."""
    found = await server.services.bulk.list(query.limit)
    return Reply(BulkList(jobs=[_view(each) for each in found if _visible(each, caller)]))


@bulk.get("/bulk/{job}", requires="view")
async def get_bulk_job(job: JobId, server: Server, caller: Caller) -> Reply[BulkView]:
    """Get a bulk job.

    With the number of executions by outcome."""
    return Reply(_view(await _find(server, caller, job)))


@bulk.get("/bulk/{job}/outcomes", requires="view")
async def list_bulk_outcomes(
    job: JobId, query: Annotated[OutcomeQuery, Query()], server: Server, caller: Caller
) -> Reply[BulkOutcomePage]:
    """List the outcomes of a bulk job.

    One for each execution that was processed."""
    await _find(server, caller, job)
    after = offset(query.cursor) - 1
    found = await server.services.bulk.outcomes(
        job, after=after, limit=query.limit + 1, outcome=query.outcome
    )
    page = found[: query.limit]
    following = str(page[-1].place + 1) if len(found) > query.limit else None
    return Reply(BulkOutcomePage(outcomes=[_outcome(each) for each in page], next=following))


@bulk.post("/bulk/{job}/abort", requires="run")
async def abort_bulk_job(job: JobId, server: Server, caller: Caller) -> Reply[BulkView]:
    """Abort a bulk job.

    No further execution is processed. What was done stays done."""
    await _find(server, caller, job)
    return Reply(_view(await server.services.bulk.abort(job)))


async def _select(
    server: ServerContext, caller: Principal, body: BulkSelection
) -> tuple[list[Summary], bool]:
    """Return the executions of a request, and whether more match."""
    if (body.ids is None) == (body.filter is None):
        raise ApiError("body: requires either `ids` or `filter`", code="BAD_BODY")
    if body.ids is not None:
        return [await _named(server, caller, each) for each in dict.fromkeys(body.ids)], False
    assert body.filter is not None
    if not body.filter.model_dump(exclude_defaults=True):
        raise ApiError(
            "body: filter: is empty and would select every execution; give at least one condition",
            code="BAD_BODY",
        )
    wanted = await execution_filter(server, body.filter, caller)
    found: list[Summary] = []
    after = None
    while True:
        size = min(BATCH_SIZE, body.limit - len(found))
        page = await server.reader.search(wanted, after=after, limit=size)
        found += page.executions
        after = page.next
        if after is None or len(found) >= body.limit:
            return found, after is not None


async def _named(server: ServerContext, caller: Principal, id: str) -> Summary:
    found = await server.reader.execution(id)
    if found is None or not caller.sees(found.workflow):
        raise ExecutionNotFoundError(f"no execution has the id {id}")
    return found


async def _without_types(server: ServerContext, hashes: set[str]) -> set[str]:
    """Return which definitions this process cannot start, because it lacks one of their node types. One that is not
    stored or damaged is none of them: the job names it."""
    plans, found = server.engine.plans, set()
    for each in hashes:
        with suppress(DefinitionNotFoundError, msgspec.ValidationError):
            definition = await plans.definition(each)
            if {node.type for node in definition.nodes} - plans.catalogue.keys():
                found.add(each)
    return found


def _eligible(action: BulkAction, each: Summary) -> bool:
    """Return whether an action can change an execution, by its status. A dead letter is an execution that failed."""
    match action:
        case "cancel":
            return each.status in OPEN
        case "pause":
            return each.status == "running"
        case "resume":
            return each.status == "paused"
        case "retry":
            return each.status in ("failed", "halted", "cancelled")
        case "retry_failed_items":
            return bool(each.failed_items)
        case "requeue":
            return each.status == "failed"


async def _find(server: ServerContext, caller: Principal, id: str) -> BulkJob:
    found = await server.services.bulk.find(id)
    if not _visible(found, caller):
        raise BulkJobNotFoundError(f"there is no bulk job `{id}`")
    return found


def _visible(job: BulkJob, caller: Principal) -> bool:
    """A job may name executions of any workflow, so that a caller with scopes sees only its own."""
    return not caller.scopes or job.principal == caller.name


def _view(job: BulkJob) -> BulkView:
    processed = sum(job.counts.values())
    return BulkView(
        id=job.id,
        action=job.action,
        status=job.status,
        created_at=moment(job.at),
        principal=job.principal,
        total=job.total,
        done=job.counts.get("done", 0),
        unchanged=job.counts.get("unchanged", 0),
        refused=job.counts.get("refused", 0),
        pending=job.total - processed,
    )


def _outcome(each: BulkOutcome) -> BulkOutcomeView:
    return BulkOutcomeView(
        execution_id=each.execution,
        outcome=each.outcome,
        started=each.started or None,
        code=each.code,
        detail=each.detail,
    )
