"""Routes that compare two executions: all differences at once, or groups of them first and the runs in pages."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import Query
from starlette.requests import Request

from rune.api.comparison import (
    ComparedRun,
    ComparedRunPage,
    ComparedRunPair,
    ComparisonSummary,
    Difference,
    DifferenceGroupView,
    RunChange,
)
from rune.core.execution.fact import NodeResult
from rune.core.execution.stored_value import Inline, Large
from rune.core.json_decoder import read_json
from rune.errors import LimitExceededError
from rune.off_loop import off_loop, off_loop_in_turn
from rune.ports.queries import NodeRun, Summary
from rune.runtime.execution_data import ExecutionData
from rune.runtime.queries.comparison import Comparison, Results, compare
from rune.runtime.queries.history import STATUS, error_document
from rune.runtime.stored_values import same_input
from rune.runtime.value_cache import Cache
from rune.server.context import ServerContext
from rune.server.resource import Resource
from rune.server.responses import Reply
from rune.server.routes.executions.executions import summary_of
from rune.server.routes.workflows import definition_of
from rune.server.routing import ExecutionId, Id, Omittable, OtherExecutionId, Page, Server, offset
from rune.server.schemas.comparison import changes
from rune.server.schemas.executions import error_view

comparing = Resource("executions")

MAX_COMPARED_RUNS = 20_000  # in one response
MAX_CACHED_COMPARISONS = 8
MAX_DECODED_BYTES = 1024 * 1024
VALUE_CACHE_BYTES = 32 * 1024 * 1024
_COMPARED_FIELDS = ("status", "attempts", "output", "error")


@comparing.get("/executions/{execution}/diff/{other}", requires="view")
async def compare_executions(
    execution: ExecutionId,
    other: OtherExecutionId,
    server: Server,
    request: Request,
) -> Reply[Difference]:
    """Compare two executions.

    Compares the definitions, the inputs and all node runs."""
    async with server.reading.take(request):
        return await _difference(server, execution, other)


async def _difference(server: ServerContext, execution: str, other: str) -> Reply[Difference]:
    pair = [await summary_of(server, id) for id in (execution, other)]
    old, new = [await definition_of(server, each.hash) for each in pair]
    accepted = [await server.reader.accepted(each.id) for each in pair]
    runs = [await _runs(server, each.id) for each in pair]
    differing: set[tuple[str, str]] = set()
    if any(
        each.size is not None for side in runs for each in side
    ):  # large outputs are compared as they are stored
        found = await _comparison(server, pair[0], pair[1])
        differing = {(each.node, each.lineage) for each in found.runs if "output" in each.fields}

    def compared() -> bytes:
        before, after = [
            {(each.node_id, _lineage(each)): _run_fields(each) for each in side} for side in runs
        ]
        nodes = [
            _change(key, before.get(key), after.get(key), differs=key in differing)
            for key in dict.fromkeys((*before, *after))
        ]
        found = Difference(
            before=pair[0].id,
            after=pair[1].id,
            status=(pair[0].status, pair[1].status),
            same_input=same_input(accepted[0].input, accepted[1].input),
            definition=changes(old, new),
            nodes=[each for each in nodes if each.fields],
        )
        return bytes(Reply(found).body)

    size = sum(len(each.output or b"") for side in runs for each in side)
    run = off_loop if size <= MAX_DECODED_BYTES else off_loop_in_turn
    return Reply(await run(compared))


async def _runs(server: ServerContext, execution: str) -> list[NodeRun]:
    found = await server.node_runs.all(execution, MAX_COMPARED_RUNS)
    if found is None:
        raise LimitExceededError("node runs of a compared execution", MAX_COMPARED_RUNS)
    return found


def _lineage(run: NodeRun) -> str:
    return "".join(f"/{each.split_node_id}:{each.item_index}" for each in run.lineage) or "/"


def _run_fields(run: NodeRun) -> dict[str, Any]:
    output: Any = None if run.output is None else msgspec.Raw(run.output)
    if run.size is not None:  # a reference, which names the execution
        output = {"bytes": run.size}
    error = error_document(run.error)
    return {"status": run.status, "attempts": run.attempts, "output": output, "error": error}


def _change(
    key: tuple[str, str], before: dict[str, Any] | None, after: dict[str, Any] | None, *, differs: bool
) -> RunChange:
    """Return how a run differs. `differs`: whether its outputs do although their lengths may be the same."""
    differ = [
        name
        for name in _COMPARED_FIELDS
        if not _same((before or {}).get(name), (after or {}).get(name)) or (name == "output" and differs)
    ]
    return RunChange(node_id=key[0], lineage=key[1], fields=differ, before=before, after=after)


def _same(one: Any, other: Any) -> bool:
    """Return whether two fields of runs are equal. Large texts, which decoded take many times their size, are equal if
    their bytes are, as inputs are."""
    if type(one) is not msgspec.Raw or type(other) is not msgspec.Raw:
        return bool(one == other)
    texts = memoryview(one), memoryview(other)
    if texts[0] == texts[1] or max(map(len, texts)) > MAX_DECODED_BYTES:
        return texts[0] == texts[1]
    return bool(read_json(one) == read_json(other))


class ComparedRunQuery(Page):
    """Which runs to list."""

    node: Omittable[Id] = None


@comparing.get("/executions/{execution}/diff/{other}/summary", requires="view")
async def get_comparison(
    execution: ExecutionId, other: OtherExecutionId, server: Server, request: Request
) -> Reply[ComparisonSummary]:
    """Compare two executions by groups of differences.

    However many items they have: runs that differ in the same way are one group. Nodes are compared by id."""
    pair = [await summary_of(server, id) for id in (execution, other)]
    old, new = [await definition_of(server, each.hash) for each in pair]
    accepted = [await server.reader.accepted(each.id) for each in pair]
    async with server.reading.take(request):
        found = await _comparison(server, pair[0], pair[1])
    return Reply(
        ComparisonSummary(
            before=execution,
            after=other,
            status=(pair[0].status, pair[1].status),
            same_input=same_input(accepted[0].input, accepted[1].input),
            same_definition=pair[0].hash == pair[1].hash,
            definition=changes(old, new),
            compared=found.compared,
            differing=len(found.runs),
            first=None if found.first is None else found.first.node,
            groups=[
                DifferenceGroupView(
                    node_id=each.node,
                    fields=list(each.fields),
                    status=(_shown(each.statuses[0]), _shown(each.statuses[1])),
                    code=each.codes,
                    count=each.count,
                    lineages=each.lineages,
                )
                for each in found.groups()
            ],
        )
    )


@comparing.get("/executions/{execution}/diff/{other}/runs", requires="view")
async def list_differing_runs(
    execution: ExecutionId,
    other: OtherExecutionId,
    query: Annotated[ComparedRunQuery, Query()],
    server: Server,
    request: Request,
) -> Reply[ComparedRunPage]:
    """List the node runs that differ between two executions.

    Without outputs, which are read one by one."""
    pair = [await summary_of(server, id) for id in (execution, other)]
    async with server.reading.take(request):
        found = await _comparison(server, pair[0], pair[1])
    begin, following = offset(query.cursor), None
    page: list[ComparedRunPair] = []
    for place, run in found.of(query.node):
        if place < begin:
            continue
        if len(page) == query.limit:
            following = str(place)
            break
        page.append(
            ComparedRunPair(
                node_id=run.node,
                lineage=run.lineage,
                fields=list(run.fields),
                before=_side(run.before),
                after=_side(run.after),
            )
        )
    return Reply(ComparedRunPage(runs=page, next=following))


async def _comparison(server: ServerContext, before: Summary, after: Summary) -> Comparison:
    """Return the differences of two executions; those of ended ones are kept, because they do not change."""
    cached, key = server.comparisons, (before.id, after.id)
    known = cached.get(key)
    if known is not None:
        cached.move_to_end(key)
        return known
    found = await compare(await _results(server, before.id), await _results(server, after.id))
    if before.ended_at is not None and after.ended_at is not None:
        cached[key] = found
        if len(cached) > MAX_CACHED_COMPARISONS:
            cached.popitem(last=False)
    return found


async def _results(server: ServerContext, execution: str) -> Results:
    backend = server.engine.backend
    accepted = await server.reader.accepted(execution)
    plan = await server.engine.plans.plan(accepted.hash)
    found = Results(ExecutionData(accepted, plan, backend.journal, backend.blob, Cache(VALUE_CACHE_BYTES)))
    async for stored in server.reader.fact_batches(execution):
        for each in stored:
            if isinstance(each.fact, NodeResult) and not each.late:
                found.add(each.fact)
    return found


def _side(result: NodeResult | None) -> ComparedRun | None:
    if result is None:
        return None
    size = None
    if type(result.value) is Inline:
        size = len(result.value.data)
    elif type(result.value) is Large:
        size = result.value.size
    return ComparedRun(
        status=STATUS.get(result.status, result.status),
        attempts=result.attempt,
        error=error_view(result.failure),
        items=result.items,
        output_bytes=size,
    )


def _shown(status: str | None) -> str | None:
    return None if status is None else STATUS.get(status, status)
