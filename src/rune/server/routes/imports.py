"""Route for importing a workflow of another tool."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Query, Request
from pydantic import Field
from starlette.responses import Response

from rune.core.definition.problems import Problem
from rune.core.limits import LIMITS
from rune.server.access.auth import requires
from rune.server.responses import ApiError, Reply
from rune.server.routing import (
    YAML_TYPES,
    QueryModel,
    Server,
    check_json,
    example,
    media_type,
    read_body,
    resource,
)
from rune.server.schemas import View

if TYPE_CHECKING:
    from rune.documents.importers import Import

imports = resource("workflows")

MAX_YAML_BYTES = 256 * 1024  # YAML takes a hundred times as long to parse as JSON

_EXAMPLE = {
    "StartAt": "Greet",
    "States": {"Greet": {"Type": "Pass", "Result": {"text": "Hello!"}, "End": True}},
}
_SOURCE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"type": "object"}, "examples": example(_EXAMPLE)},
            "application/yaml": {"schema": {}},
        },
    }
}


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


class ImportEntry(View, frozen=True, kw_only=True):
    """What became of one element of the source. `source` and `target` are paths in the two documents."""

    source: str
    status: Literal["carried", "changed", "approximated", "by_hand"]
    target: str
    message: str
    hint: str


class Imported(View, frozen=True, kw_only=True):
    """The new document and the report. `complete`: everything was carried and the document is valid. `stubs` is the
    Python source of custom nodes to complete, `test` a test for `rune test` whose mocks are the pinned data of the
    source, without its workflow."""

    document: dict[str, Any]
    format: Literal["canvas", "n8n", "asl"]
    complete: bool
    counts: dict[str, int]
    entries: list[ImportEntry]
    problems: list[Problem]
    stubs: str
    test: dict[str, Any]


@imports.post(
    "/workflows/import",
    summary="Convert a workflow of another tool without storing it",
    dependencies=[requires("edit")],
    response_model=Imported,
    openapi_extra=_SOURCE,
)
async def import_workflow(
    request: Request, query: Annotated[ImportQuery, Query()], server: Server
) -> Response:
    """Reads exports of n8n, state machines of Step Functions and canvas documents, and reports what became
    of each element. The returned document can be edited and stored."""
    data = await read_body(request, LIMITS.definition_bytes)
    if media_type(request) not in YAML_TYPES:
        check_json(request, also=" or application/yaml")
    elif len(data) > MAX_YAML_BYTES:
        raise ApiError(f"YAML documents are limited to {MAX_YAML_BYTES:,} bytes; send JSON", code="TOO_LARGE")
    catalogue = server.engine.plans.catalogue

    def convert() -> Import:
        from rune.documents.importers import import_document  # noqa: PLC0415 - most servers import nothing

        return import_document(data, catalogue, format=query.format, name=query.name, stubs=query.stubs)

    # One at a time and outside of the event loop, as other documents are read.
    async with server.parsing:
        found = await asyncio.to_thread(convert)
    report = found.report
    return Reply(
        Imported(
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
    )
