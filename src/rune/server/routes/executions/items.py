"""Routes for the items of a split: as one byte each, as a list, and counted."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from rune.api.items import CodeCount, Facets, ItemTimes, SplitItemPage, SplitItemView
from rune.core.definition.problems import did_you_mean
from rune.core.execution.token import Path, path_text
from rune.core.limits import LIMITS
from rune.ports.clock import iso, moment
from rune.runtime.queries.overview import MAX_BYTE, Items, Overview, Property, item_bytes, item_times, tally
from rune.runtime.queries.scope_states import STATES, NodeState
from rune.server.context import ServerContext
from rune.server.resource import Resource
from rune.server.responses import ApiError, Reply
from rune.server.routing import ExecutionId, Id, Item, NodeId, Omittable, Page, QueryModel, Server, offset
from rune.server.views.node_runs import NodeRunNotFoundError, parse_scope

items = Resource("executions")

Code = Annotated[str, Field(min_length=1, max_length=200)]
BYTES: dict[str, Any] = {
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    "headers": {
        "Rune-Items": {"description": "The number of items.", "schema": {"type": "integer"}},
        "Rune-Number": {
            "description": "The number of the last event that is included.",
            "schema": {"type": "integer"},
        },
    },
}


class ScopeQuery(QueryModel):
    """Which items: those in one lineage of the split; `node`: the state and error of one node in each item instead of
    the worst."""

    lineage: Omittable[Item] = None
    node: Omittable[Id] = None


class FacetQuery(ScopeQuery):
    """`times`: also when the items ran."""

    times: bool = False


class PackedQuery(ScopeQuery):
    """What each byte is."""

    by: Property = "state"
    offset: Annotated[int, Field(ge=0, le=LIMITS.items)] = 0
    limit: Annotated[int, Field(ge=1, le=LIMITS.items)] = LIMITS.items


class ItemQuery(Page):
    """Filters of the list of items."""

    lineage: Omittable[Item] = None
    node: Omittable[Id] = None
    status: list[NodeState] = Field(default=[], description="May be repeated: items with any of them.")
    code: Omittable[Code] = None


class _Selected:
    """The items that a request names."""

    def __init__(self, overview: Overview, items: Items, node: int | None) -> None:
        self.overview = overview
        self.items = items
        self.node = node

    def bytes_by(self, by: Property) -> bytes:
        return item_bytes(self.overview, self.items, by, self.node)


async def _select(
    server: ServerContext, execution: str, split: str, lineage: str | None, node: str | None
) -> _Selected:
    plan = await server.reader.plan(execution)
    path: Path = parse_scope(lineage, plan)
    overview = await server.overviews.of(execution)
    found = overview.items_of(plan.index.get(split, -1), path)
    if found is None:
        if split not in plan.index:
            raise NodeRunNotFoundError(
                f"the workflow has no node `{split}`: {did_you_mean(split, plan.index)}"
            )
        raise NodeRunNotFoundError(f"`{split}` has no items here: it is not a split, or it has not begun")
    index = None if node is None else plan.index.get(node, -1)
    if index is not None and index not in found.columns:
        raise ApiError(f"`{node}` is not a node directly inside `{split}`", code="UNKNOWN_NODE")
    return _Selected(overview, found, index)


@items.get("/executions/{execution}/splits/{node}/items/packed", requires="view", responses={200: BYTES})
async def pack_items(
    execution: ExecutionId, node: NodeId, query: Annotated[PackedQuery, Query()], server: Server
) -> Response:
    """Get the items of a split as one byte each.

    By state, a position in the `legend` of the facets; by code, its `byte` there; by attempts; or by duration: 1 +
    8 · log2(ms + 1), 0 if unknown. In the order of the items."""
    chosen = await _select(server, execution, node, query.lineage, query.node)
    found = chosen.bytes_by(query.by)[query.offset : query.offset + query.limit]
    headers = {"Rune-Items": str(chosen.items.count), "Rune-Number": str(chosen.overview.number)}
    return Reply(found, headers, media_type=b"application/octet-stream")


@items.get("/executions/{execution}/splits/{node}/items/facets", requires="view")
async def count_items(
    execution: ExecutionId, node: NodeId, query: Annotated[FacetQuery, Query()], server: Server
) -> Reply[Facets]:
    """Count the items of a split.

    By state and by error code, most frequent codes first; with `times=true` also the durations of the items and how
    many were under way at a time."""
    chosen = await _select(server, execution, node, query.lineage, query.node)
    states, codes = tally(chosen.bytes_by("state")), tally(chosen.bytes_by("code"))
    named = chosen.overview.codes
    counted = [
        CodeCount(code=named[byte] if byte < min(MAX_BYTE, len(named)) else "", byte=byte, count=count)
        for byte, count in sorted(codes.items(), key=lambda each: -each[1])
        if byte
    ]
    return Reply(
        Facets(
            number=chosen.overview.number,
            items=chosen.items.count,
            states={STATES[each]: count for each, count in states.items()},
            codes=counted,
            legend=list(STATES),
            times=_times(chosen) if query.times else None,
        )
    )


def _times(chosen: _Selected) -> ItemTimes | None:
    found = item_times(chosen.items)
    if found is None:
        return None
    origin = chosen.overview.started_at
    return ItemTimes(
        items=found.count,
        began_at=moment(origin + found.began),
        ended_at=moment(origin + found.ended),
        min_ms=found.shortest,
        median_ms=found.median,
        p95_ms=found.p95,
        max_ms=found.longest,
        density=found.density,
    )


@items.get("/executions/{execution}/splits/{node}/items", requires="view")
async def list_items(
    execution: ExecutionId, node: NodeId, query: Annotated[ItemQuery, Query()], server: Server
) -> Reply[SplitItemPage]:
    """List the items of a split.

    In their order, with the states of the nodes in each."""
    start = offset(query.cursor)
    chosen = await _select(server, execution, node, query.lineage, query.node)
    states, codes = chosen.bytes_by("state"), chosen.bytes_by("code")
    wanted = frozenset(STATES.index(each) for each in query.status) or frozenset(range(len(STATES)))
    known = chosen.overview.codes
    byte = None
    if query.code is not None:
        if query.code not in known:
            return Reply(SplitItemPage(items=[], next=None))
        byte = min(MAX_BYTE, known.index(query.code))
    found = _matching(states, wanted, codes, byte, start, query.limit + 1)
    page = found[: query.limit]
    more = len(found) > query.limit
    shown = [_item(chosen, index, states[index], codes[index]) for index in page]
    return Reply(SplitItemPage(items=shown, next=str(page[-1] + 1) if more else None))


def _matching(
    states: bytes, wanted: frozenset[int], codes: bytes, byte: int | None, start: int, most: int
) -> list[int]:
    """Return up to `most` items from `start` on with a wanted state and code. Most items are passed over by a search
    in bytes, without a step in Python for each."""
    marks = bytes(each in wanted for each in range(256))
    searched, sought = (states.translate(marks), b"\1") if byte is None else (codes, bytes((byte,)))
    found: list[int] = []
    index = searched.find(sought, start)
    while index >= 0 and len(found) < most:
        if states[index] in wanted:
            found.append(index)
        index = searched.find(sought, index + 1)
    return found


def _item(chosen: _Selected, index: int, state: int, code: int) -> SplitItemView:
    overview, items = chosen.overview, chosen.items
    plan = overview.plan
    started, ended = items.starts[index], items.ends[index]
    inside = overview.item_states(items, index)
    return SplitItemView(
        item=path_text((*items.path, items.split, index), plan.ids).lstrip("/"),
        index=index,
        state=STATES[state],
        code=overview.codes[code] if code < min(MAX_BYTE, len(overview.codes)) else "",
        attempts=max((each.attempts[index] for each in items.columns.values()), default=0),
        started_at=iso(overview.started_at + started - 1) if started else None,
        duration_ms=ended - started if started else None,
        nodes={plan.ids[node]: STATES[each] for node, each in zip(items.nodes, inside.states, strict=True)},
    )
