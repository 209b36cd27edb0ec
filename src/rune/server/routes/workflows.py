"""Routes for workflows, their immutable versions and their aliases, and for definitions and blobs."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rune.core.definition.diff import Change, difference
from rune.core.definition.model import canonical, content_hash
from rune.core.definition.problems import Problem
from rune.core.limits import LIMITS
from rune.core.validation.validate import ValidationResult
from rune.documents.loader import check_document, definition_in, load_document
from rune.errors import RuneError
from rune.ports.workflows import (
    LATEST,
    NOTHING,
    Alias,
    ConcurrentChangeError,
    Expected,
    Version,
    choose,
    workflow_not_found,
)
from rune.runtime.plan_cache import DefinitionNotFoundError
from rune.server.auth import check_sees
from rune.server.context import ServerContext
from rune.server.endpoints import PREFIX, RequestContext, Router
from rune.server.requests import YAML_TYPES, Page, check_json, media_type, offset
from rune.server.responses import ApiError, Reply, etag, expected, no_content, not_changed, tags
from rune.server.schemas import (
    Deployed,
    VersionPage,
    View,
    WorkflowDetail,
    WorkflowPage,
    deployed,
    version_view,
    workflow_detail,
    workflow_view,
)

workflows = Router("workflows")

MAX_INLINE_PARSE_BYTES = 8 * 1024  # larger documents are parsed in a thread
MAX_YAML_BYTES = 256 * 1024  # YAML takes a hundred times as long to parse as JSON
IMMUTABLE = "private, max-age=31536000, immutable"

DOCUMENT: dict[str, Any] = {
    "body": bytes,
    "limit": LIMITS.definition_bytes,
    "media": ("application/json", "application/yaml"),
    "example": {
        "id": "hello",
        "nodes": [
            {"id": "in", "type": "input"},
            {"id": "out", "type": "output", "parameters": {"value": "Hello, {{ $trigger.name }}!"}},
        ],
        "edges": [{"src": "in", "dst": "out"}],
    },
}
definitions = Router("definitions")
aliases = Router("workflows")
Number = Annotated[int, Meta(ge=1, le=2**53)]
Percent = Annotated[float, Meta(gt=0, le=100)]


class WorkflowQuery(Page, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filters of the list of workflows."""

    hidden: bool = False


class VersionQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The versions to compare."""

    before: str
    after: str = LATEST


class Checked(View, frozen=True, kw_only=True):
    """The result of a validation; `hash` is null if the document is invalid."""

    valid: bool
    workflow_id: str | None
    hash: str | None
    problems: list[Problem]


class Compared(View, frozen=True, kw_only=True):
    """The differences between two versions."""

    workflow_id: str
    before: int
    after: int
    changes: list[Change]


async def _validate(call: RequestContext) -> ValidationResult:
    """Validate the document in a body: YAML or JSON, by its media type."""
    suffix = "json"
    if media_type(call.request) in YAML_TYPES:
        suffix = "yaml"
        if len(call.data) > MAX_YAML_BYTES:
            raise ApiError(
                f"YAML documents are limited to {MAX_YAML_BYTES:,} bytes; send JSON", code="TOO_LARGE"
            )
    else:
        check_json(call.request, also=" or application/yaml")
    catalogue = call.server.engine.plans.catalogue

    def read() -> ValidationResult:
        return check_document(load_document(call.data, suffix), catalogue)

    if len(call.data) <= MAX_INLINE_PARSE_BYTES:
        return read()
    # One at a time and outside of the event loop, so that large documents delay only each other.
    async with call.server.parsing:
        return await asyncio.to_thread(read)


@workflows(
    "POST",
    "/workflows",
    "Store a new workflow",
    permission="edit",
    response=Deployed,
    status=201,
    responses={409: "A workflow with this id exists."},
    **DOCUMENT,
)
async def create(call: RequestContext) -> Response:
    """The document contains the id. An archived workflow with this id is restored."""
    result = await _validate(call)
    version = await _deploy(call, result, (NOTHING,))
    headers = {"Location": f"{PREFIX}/workflows/{version.workflow}", "ETag": etag(version.hash)}
    return Reply(deployed(version, list(result.problems)), 201, headers)


@workflows(
    "PUT",
    "/workflows/{workflow}",
    "Store a new version of a workflow",
    permission="edit",
    response=Deployed,
    responses={201: "The workflow is new.", 409: "The precondition does not hold."},
    headers=("If-Match", "If-None-Match"),
    **DOCUMENT,
)
async def update(call: RequestContext) -> Response:
    """Versions are immutable: creates the next one, or returns an existing one with the same content, and points
    `latest` at it."""
    result = await _validate(call)
    workflow = call.path["workflow"]
    named = definition_in(result).id
    if named != workflow:
        raise ApiError(f"the document has the id `{named}`, not `{workflow}`", code="OTHER_WORKFLOW")
    version = await _deploy(call, result, expected(call.header("if-match"), call.header("if-none-match")))
    first = version.number == 1 and version.change == "created"
    return Reply(
        deployed(version, list(result.problems)), 201 if first else 200, {"ETag": etag(version.hash)}
    )


async def _deploy(call: RequestContext, result: ValidationResult, expecting: Expected | None) -> Version:
    definition = definition_in(result)
    check_sees(call.principal, definition.id)
    try:
        return await call.server.services.workflows.deploy(canonical(definition), expected=expecting)
    except ConcurrentChangeError:
        if expecting != (NOTHING,):
            raise
        detail = f"workflow `{definition.id}` exists; PUT creates a new version"
        raise ApiError(detail, code="WORKFLOW_EXISTS") from None


@workflows(
    "POST",
    "/workflows/validate",
    "Validate a document without storing it",
    permission="view",
    response=Checked,
    **DOCUMENT,
)
async def validate(call: RequestContext) -> Response:
    """Returns all problems, including warnings."""
    result = await _validate(call)
    definition = result.definition if result.valid else None
    return Reply(
        Checked(
            valid=result.valid,
            workflow_id=None if definition is None else definition.id,
            hash=None if definition is None else content_hash(definition),
            problems=list(result.problems),
        )
    )


@workflows(
    "GET",
    "/workflows",
    "List workflows, ordered by id",
    permission="view",
    query=WorkflowQuery,
    response=WorkflowPage,
)
async def list_workflows(call: RequestContext) -> Response:
    """With `hidden`, archived workflows are included."""
    query: WorkflowQuery = call.query
    entries = await call.server.reader.workflows.list(hidden=query.hidden)
    sees = call.principal.sees
    found = [each for each in entries if each.workflow > (query.cursor or "") and sees(each.workflow)]
    page = found[: query.limit]
    following = page[-1].workflow if len(found) > query.limit else None
    return Reply(WorkflowPage(workflows=[workflow_view(each) for each in page], next=following))


@workflows(
    "GET",
    "/workflows/{workflow}",
    "Get the latest version of a workflow",
    permission="view",
    response=WorkflowDetail,
    responses={304: "Not modified since `If-None-Match`."},
    headers=("If-None-Match",),
)
async def get_workflow(call: RequestContext) -> Response:
    """Includes the definition."""
    return await _version(call, None)


@workflows(
    "GET",
    "/workflows/{workflow}/versions",
    "List the versions of a workflow",
    permission="view",
    query=Page,
    response=VersionPage,
)
async def list_versions(call: RequestContext) -> Response:
    """Oldest first, also for an archived workflow."""
    workflow = call.path["workflow"]
    versions = await call.server.reader.workflows.versions(workflow)
    if not versions:
        raise workflow_not_found(workflow, (), LATEST)
    start = offset(call.query.cursor)
    page = versions[start : start + call.query.limit]
    more = start + call.query.limit < len(versions)
    following = str(start + call.query.limit) if more else None
    return Reply(VersionPage(versions=[version_view(each) for each in page], next=following))


@workflows(
    "GET",
    "/workflows/{workflow}/versions/{version}",
    "Get a version of a workflow",
    permission="view",
    response=WorkflowDetail,
    responses={304: "Not modified since `If-None-Match`."},
    headers=("If-None-Match",),
)
async def get_version(call: RequestContext) -> Response:
    """By number or alias."""
    return await _version(call, call.path["version"])


async def _version(call: RequestContext, which: str | None) -> Response:
    version = await call.server.reader.workflows.find(call.path["workflow"], which)
    tag = etag(version.hash)
    if tag in tags(call.header("if-none-match")):
        return not_changed(tag)
    return Reply(
        workflow_detail(version, await definition_of(call.server, version.hash)), headers={"ETag": tag}
    )


async def definition_of(server: ServerContext, hash: str) -> dict[str, Any]:
    """Load a definition by its hash."""
    data = await server.reader.definition(hash)
    if data is None:
        raise DefinitionNotFoundError(f"no definition has the hash {hash}")
    found: dict[str, Any] = msgspec.json.decode(data)
    return found


@workflows(
    "GET",
    "/workflows/{workflow}/diff",
    "Compare two versions",
    permission="view",
    query=VersionQuery,
    response=Compared,
)
async def compare(call: RequestContext) -> Response:
    """Lists the changes by node and field."""
    workflow, query = call.path["workflow"], call.query
    versions = await call.server.reader.workflows.versions(workflow)
    before, after = choose(workflow, versions, query.before), choose(workflow, versions, query.after)
    old, new = [await definition_of(call.server, each.hash) for each in (before, after)]
    return Reply(
        Compared(
            workflow_id=workflow,
            before=before.number,
            after=after.number,
            changes=list(difference(old, new)),
        )
    )


@workflows("DELETE", "/workflows/{workflow}", "Archive a workflow", permission="edit", status=204)
async def delete(call: RequestContext) -> Response:
    """Keeps its versions and executions. Archiving again changes nothing."""
    await call.server.services.workflows.archive(call.path["workflow"])
    return no_content()


@workflows(
    "POST",
    "/workflows/{workflow}/restore",
    "Restore an archived workflow",
    permission="edit",
    response=Deployed,
)
async def restore(call: RequestContext) -> Response:
    """`latest` points at the same version as before."""
    workflow = call.path["workflow"]
    versions = await call.server.reader.workflows.versions(workflow)
    latest = choose(workflow, versions, LATEST)
    return Reply(
        deployed(await call.server.services.workflows.set_alias(workflow, LATEST, latest.number), [])
    )


class BlobNotFoundError(RuneError):
    """An execution has no blob under this key."""

    code = "UNKNOWN_BLOB"


@definitions(
    "GET",
    "/definitions/{hash}",
    "Get a definition by its hash",
    permission="view",
    response=Any,
    responses={304: "Not modified since `If-None-Match`."},
    headers=("If-None-Match",),
)
async def get_definition(call: RequestContext) -> Response:
    """In canonical form, for any workflow or execution."""
    hash = call.path["hash"]
    if call.header("if-none-match") == etag(hash):
        return not_changed(etag(hash))
    data = await call.server.reader.definition(hash)
    if data is None:
        raise DefinitionNotFoundError(f"no definition has the hash {hash}")
    return Reply(data, headers={"ETag": etag(hash), "Cache-Control": IMMUTABLE})


@definitions(
    "GET",
    "/executions/{execution}/blobs/{key:path}",
    "Get a blob of an execution",
    permission="view",
    response=bytes,
    response_type="application/octet-stream",
)
async def get_blob(call: RequestContext) -> Response:
    """Blobs hold values that are too large for the journal."""
    accepted = await call.server.reader.accepted(call.path["execution"])
    data = await call.server.engine.backend.blob.get(f"{accepted.id}/{call.path['key']}")
    if data is None:
        raise BlobNotFoundError(f"{accepted.id} has no blob `{call.path['key'][:120]}`")
    headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": IMMUTABLE}
    return Response(data, headers=headers, media_type="application/octet-stream")


class AliasBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The target of an alias. `weights` send a percentage of the starts to other versions. Without `version` the alias
    keeps its version."""

    version: Number | None = None
    weights: Annotated[dict[Number, Percent], Meta(max_length=16)] = {}


class AliasView(View, frozen=True, kw_only=True):
    """An alias. Starts go to `version`, except for the percentages in `weights`; `revision` counts the changes."""

    alias: str
    version: int
    weights: dict[int, float]
    revision: int


class AliasList(View, frozen=True, kw_only=True):
    """The aliases of a workflow."""

    aliases: list[AliasView]


@aliases(
    "GET",
    "/workflows/{workflow}/aliases",
    "List the aliases of a workflow",
    permission="view",
    response=AliasList,
)
async def list_aliases(call: RequestContext) -> Response:
    """Includes the version and the weights of each alias."""
    found = await _list_aliases(call)
    return Reply(AliasList(aliases=[_alias_view(each) for each in found]))


@aliases(
    "GET",
    "/workflows/{workflow}/aliases/{alias}",
    "Get an alias of a workflow",
    permission="view",
    response=AliasView,
)
async def get_alias(call: RequestContext) -> Response:
    """Includes its version and weights."""
    return await _get_alias(call)


@aliases(
    "PUT",
    "/workflows/{workflow}/aliases/{alias}",
    "Point an alias at a version",
    permission="edit",
    body=AliasBody,
    response=AliasView,
    responses={409: "The precondition does not hold."},
    headers=("If-Match", "If-None-Match"),
    example={"version": 2, "weights": {"3": 10}},
)
async def put_alias(call: RequestContext) -> Response:
    """Running executions keep their version. A request without weights ends a gradual roll-out."""
    body: AliasBody = call.body
    await call.server.services.workflows.set_alias(
        call.path["workflow"],
        call.path["alias"],
        body.version,
        weights=body.weights,
        expected=expected(call.header("if-match"), call.header("if-none-match")),
    )
    return await _get_alias(call)


async def _list_aliases(call: RequestContext) -> list[Alias]:
    workflow = call.path["workflow"]
    found = await call.server.engine.backend.workflows.aliases(workflow)
    if not found:
        raise workflow_not_found(workflow, (), LATEST)
    return found


async def _get_alias(call: RequestContext) -> Response:
    workflow, alias = call.path["workflow"], call.path["alias"]
    for each in await _list_aliases(call):
        if each.name == alias:
            return Reply(_alias_view(each), headers={"ETag": etag(str(each.revision))})
    raise workflow_not_found(workflow, await call.server.reader.workflows.versions(workflow), alias)


def _alias_view(each: Alias) -> AliasView:
    return AliasView(alias=each.name, version=each.number, weights=each.weights, revision=each.revision)
