"""Routes for definitions by their hash: content and layout; for blobs of executions; and for importing a workflow of
another tool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Body, Query, Request
from pydantic import Field
from starlette.responses import Response

from rune.api.definitions import (
    EdgePlace,
    FramePlace,
    Imported,
    ImportEntry,
    LayoutView,
    NodePlace,
    PreviewView,
)
from rune.core.definition.model import Definition
from rune.core.json_decoder import JsonDecoder
from rune.core.limits import LIMITS
from rune.core.node_type import Catalogue
from rune.documents.draw.layout import Direction, Layout, Point, Style, lay_out, port_offsets, port_position
from rune.documents.draw.model import Drawing, draw_stored
from rune.errors import RuneError
from rune.off_loop import off_loop
from rune.runtime.execution_data import ExecutionData, ExecutionNotFoundError
from rune.runtime.plan_cache import DefinitionNotFoundError
from rune.runtime.queries.node_input import (
    MAX_DECODED_BYTES,
    MAX_PREVIEW_BYTES,
    DraftPlace,
    Mode,
    preview,
    preview_place,
)
from rune.runtime.value_cache import Cache
from rune.server.bodies import read_body
from rune.server.context import ServerContext
from rune.server.resource import Resource, example, json_or_yaml
from rune.server.responses import ApiError, NotChanged, Reply, etag
from rune.server.routing import (
    YAML_TYPES,
    BlobKey,
    Caller,
    DefinitionHash,
    ExecutionId,
    Id,
    IfNoneMatch,
    JsonBody,
    QueryModel,
    Range,
    Server,
    check_json,
    media_type,
)
from rune.server.views.value_parts import PartQuery, bytes_reply, value_reply

if TYPE_CHECKING:
    from rune.documents.importers import Import


definitions = Resource("definitions")

IMMUTABLE = "private, max-age=31536000, immutable"
_DECODER = JsonDecoder(Definition)


class LayoutQuery(QueryModel):
    """The direction of the layers and the size of each node."""

    direction: Direction = "right"
    width: Annotated[int, Field(ge=20, le=1_000, description="Width of a node.")] = 200
    height: Annotated[int, Field(ge=20, le=1_000, description="Height of a node.")] = 64


MAX_INLINE_BYTES = 8 * 1024  # larger definitions are laid out in a thread, and their layouts kept
MAX_KEPT_LAYOUT_BYTES = 8 * 1024 * 1024


class BlobNotFoundError(RuneError):
    """An execution has no blob under this key."""

    code = "UNKNOWN_BLOB"


@definitions.get("/definitions/{hash}", requires="view")
async def get_definition(
    hash: DefinitionHash,
    server: Server,
    if_none_match: IfNoneMatch = None,
) -> Reply[Any] | NotChanged:
    """Get a definition by its hash.

    In canonical form, for any workflow or execution."""
    if if_none_match == etag(hash):
        return NotChanged(etag(hash))
    data = await server.reader.definition(hash)
    if data is None:
        raise DefinitionNotFoundError(f"no definition has the hash {hash}")
    return Reply(data, headers={"ETag": etag(hash), "Cache-Control": IMMUTABLE})


@definitions.get("/definitions/{hash}/layout", requires="view")
async def get_layout(
    request: Request,
    hash: DefinitionHash,
    query: Annotated[LayoutQuery, Query()],
    server: Server,
    if_none_match: IfNoneMatch = None,
) -> Reply[LayoutView] | NotChanged:
    """Get the layout of a definition.

    Places of nodes, bends of edges and frames of splits, in layers from left to right or from top to bottom. The
    same definition always has the same layout."""
    tag = etag(f"{hash}-{query.direction}-{query.width}-{query.height}")
    if if_none_match == tag:
        return NotChanged(tag)
    data = await server.reader.definition(hash)
    if data is None:
        raise DefinitionNotFoundError(f"no definition has the hash {hash}")
    return Reply(await _lay_out(request, data, query, tag), headers={"ETag": tag, "Cache-Control": IMMUTABLE})


async def _lay_out(request: Request, data: bytes, query: LayoutQuery, tag: str) -> bytes:
    server: ServerContext = request.app.state.server
    catalogue: Catalogue = server.engine.plans.catalogue

    def work() -> bytes:
        view = layout_view(draw_stored(_DECODER.decode(data), catalogue), query)
        return bytes(Reply(view).body)

    if len(data) <= MAX_INLINE_BYTES:
        return work()
    async with server.parsing.take(request):
        # Requests that waited find the layout of the first one.
        found = server.layouts.pop(tag, b"") or await off_loop(work)
    server.layouts[tag] = found
    while sum(map(len, server.layouts.values())) > MAX_KEPT_LAYOUT_BYTES:
        server.layouts.popitem(last=False)
    return found


def layout_view(drawing: Drawing, query: LayoutQuery) -> LayoutView:
    """Lay out a drawing."""
    size = float(query.width), float(query.height)
    style = Style(query.direction, lambda box: size)
    layout = lay_out(drawing, style)
    return LayoutView(
        direction=layout.direction,
        width=_rounded(layout.width),
        height=_rounded(layout.height),
        nodes={box.id: _node_place(drawing, layout, style, at) for at, box in enumerate(drawing.boxes)},
        edges={
            link.id: EdgePlace(
                points=[_pair(each) for each in layout.routes[at]],
                outlet=None if link.is_error else link.port,
                is_error=link.is_error,
            )
            for at, link in enumerate(drawing.links)
        },
        frames={
            drawing.boxes[split].id: FramePlace(
                x=_rounded(each.x),
                y=_rounded(each.y),
                width=_rounded(each.width),
                height=_rounded(each.height),
            )
            for split, each in layout.frames.items()
        },
    )


def _node_place(drawing: Drawing, layout: Layout, style: Style, at: int) -> NodePlace:
    box, place = drawing.boxes[at], layout.boxes[at]
    outlets = {
        port: _pair(port_position(place, offset, style.direction))
        for port, offset in port_offsets(box, style).items()
    }
    return NodePlace(
        x=_rounded(place.x), y=_rounded(place.y), width=place.width, height=place.height, outlets=outlets
    )


def _pair(point: Point) -> list[float]:
    return [_rounded(point[0]), _rounded(point[1])]


def _rounded(value: float) -> float:
    return round(value, 1)


class DraftBody(JsonBody):
    """A node as a draft has it."""

    after: Annotated[
        list[Id], Field(max_length=1_000, description="The nodes before it, by their ids in the draft.")
    ]
    names: Annotated[
        dict[Id, Id],
        Field(
            max_length=1_000,
            description="The nodes that the text mentions, by their ids in the draft, with their ids in the execution.",
        ),
    ]


class PreviewBody(JsonBody):
    """An expression and the place where it is evaluated."""

    text: Annotated[str, Field(min_length=1, max_length=8 * 1024)]
    mode: Mode = "template"
    execution: Id
    node: Id
    lineage: Annotated[str, Field(max_length=400, description="An item such as `users:5/orders:2`.")] = ""
    draft: DraftBody | None = None


@definitions.post("/expressions/preview", requires="view")
async def preview_expression(
    body: Annotated[
        PreviewBody,
        Body(
            openapi_examples=example(
                {"text": "{{ $fetch.body | len }}", "execution": "x01", "node": "tell", "lineage": "users:5"}
            )
        ),
    ],
    server: Server,
    caller: Caller,
) -> Reply[PreviewView]:
    """Evaluate an expression on the values of an execution.

    As a parameter of the node in that lineage, with the limits of the engine. `mode` is `expression` if the whole
    text is one, without braces. With `draft`, the node may be one that the execution does not have, or has elsewhere:
    the text sees every node that ran in the lineage or around it."""
    accepted = await server.reader.accepted(body.execution)
    if not caller.sees(accepted.workflow):
        raise ExecutionNotFoundError(f"no execution has the id {body.execution}")
    engine = server.engine
    data = ExecutionData(
        accepted,
        await engine.plans.plan(accepted.hash),
        engine.backend.journal,
        engine.backend.blob,
        Cache(MAX_DECODED_BYTES),
        max_decoded=MAX_DECODED_BYTES,
    )
    draft = None if body.draft is None else DraftPlace(tuple(body.draft.after), body.draft.names)
    place = preview_place(data.plan, body.node, body.lineage, draft)
    if place is None:
        raise ApiError(f"the workflow has no node `{body.node}`", code="UNKNOWN_NODE")
    found = await preview(data, engine.evaluator, body.text, body.mode, place, server.clock.now())
    return Reply(
        PreviewView(
            text=found.text,
            type=found.kind,
            truncated=found.size > MAX_PREVIEW_BYTES,
            bytes=found.size,
            problems=list(found.problems),
        )
    )


@definitions.get(
    "/executions/{execution}/blobs/{key:path}",
    requires="view",
    responses={
        200: {"content": {"application/octet-stream": {"schema": {}}, "application/json": {"schema": {}}}},
        206: {
            "description": "The requested range.",
            "content": {"application/octet-stream": {"schema": {}}},
        },
        416: {"description": "The range begins behind the end of the blob."},
    },
)
async def get_blob(
    execution: ExecutionId,
    key: BlobKey,
    query: Annotated[PartQuery, Query()],
    server: Server,
    range: Range = None,
) -> Response:
    """Get a blob of an execution.

    Blobs hold values that are too large for the journal. With `Range` one range of bytes; with `pointer`, `depth`,
    `offset` or `limit` a part of a JSON value, as a `ValuePart`; with `find` matches in it, as `ValueMatches`."""
    accepted = await server.reader.accepted(execution)

    async def load() -> bytes:
        data = await server.engine.backend.blob.get(f"{accepted.id}/{key}")
        if data is None:
            raise BlobNotFoundError(f"{accepted.id} has no blob `{key[:120]}`")
        return data

    if query.wanted:
        return await value_reply(await server.values.get((accepted.id, "blob", key), load), query)
    return bytes_reply(await load(), range, {"X-Content-Type-Options": "nosniff", "Cache-Control": IMMUTABLE})


imports = Resource("workflows")

MAX_YAML_BYTES = 256 * 1024  # YAML takes a hundred times as long to parse as JSON

_EXAMPLE = {
    "StartAt": "Greet",
    "States": {"Greet": {"Type": "Pass", "Result": {"text": "Hello!"}, "End": True}},
}
_SOURCE = json_or_yaml(_EXAMPLE)


class ImportQuery(QueryModel):
    """How to read the document."""

    format: Annotated[
        Literal["canvas", "n8n", "asl"] | None,
        Field(description="Format of the document. Default: detected."),
    ] = None
    name: Annotated[
        str, Field(max_length=200, description="Name of the workflow if the document has none.")
    ] = ""
    stubs: Annotated[
        bool, Field(description="Import tasks of a state machine as custom nodes, with their Python source.")
    ] = False


@imports.post("/workflows/import", requires="edit", body=_SOURCE)
async def import_workflow(
    request: Request, query: Annotated[ImportQuery, Query()], server: Server
) -> Reply[Imported]:
    """Convert a workflow of another tool without storing it.

    Reads exports of n8n, state machines of Step Functions and canvas documents, and reports what became
    of each element. The returned document can be edited and stored."""
    data = await read_body(request, LIMITS.definition_bytes)
    yaml = media_type(request) in YAML_TYPES
    if not yaml:
        check_json(request, also=" or application/yaml")
    elif len(data) > MAX_YAML_BYTES:
        raise ApiError(f"YAML documents are limited to {MAX_YAML_BYTES:,} bytes; send JSON", code="TOO_LARGE")
    catalogue = server.engine.plans.catalogue

    def convert() -> bytes:
        from rune.documents.importers import import_document  # noqa: PLC0415 - most servers import nothing

        return _encoded(
            import_document(data, catalogue, format=query.format, name=query.name, stubs=query.stubs)
        )

    # One at a time and outside of the event loop, as other documents are read.
    async with (server.parsing_yaml if yaml else server.parsing).take(request):
        return Reply(await off_loop(convert))


def _encoded(found: Import) -> bytes:
    report = found.report
    view = Imported(
        document=found.document,
        format=report.format,
        complete=report.complete,
        counts={str(name): count for name, count in report.counts().items()},
        entries=[
            ImportEntry(**{name: getattr(each, name) for name in each.__struct_fields__})
            for each in report.entries
        ],
        problems=list(report.problems),
        stubs=found.stubs,
        test=found.test,
    )
    return bytes(Reply(view).body)
