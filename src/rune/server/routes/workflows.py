"""Routes for workflows, their immutable versions and their aliases."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import Body, Depends, Query, Request
from msgspec.structs import asdict
from pydantic import BeforeValidator, Field
from starlette.responses import Response

from rune.api.comparison import Compared
from rune.api.definitions import LayoutView
from rune.api.workflows import (
    AliasList,
    AliasView,
    Archived,
    Checked,
    Deployed,
    OutcomeView,
    PlannedNode,
    PointedAlias,
    VersionPage,
    WorkflowActivity,
    WorkflowDetail,
    WorkflowPage,
)
from rune.core.definition.model import canonical, content_hash
from rune.core.definition.problems import Problem
from rune.core.json_decoder import read_json
from rune.core.limits import LIMITS
from rune.core.permissions import Principal
from rune.core.plan.graph import ancestors
from rune.core.validation.validate import ValidationResult
from rune.documents.draw.model import draw_definition
from rune.documents.json_schema import NeedsThreadError, short_checks
from rune.documents.loader import check_document, definition_in, load_document
from rune.errors import RuneError
from rune.off_loop import off_loop
from rune.ports.clock import moment
from rune.ports.workflows import (
    LATEST,
    NOTHING,
    Alias,
    ConcurrentChangeError,
    Expected,
    Version,
    VersionSource,
    choose,
    version_source,
    workflow_not_found,
)
from rune.runtime.plan_cache import DefinitionNotFoundError
from rune.runtime.queries.children import is_stored, undeployed_children
from rune.runtime.services.workflows import MAX_NOTE_LENGTH
from rune.server.auth import check_sees
from rune.server.bodies import read_body
from rune.server.context import ServerContext
from rune.server.resource import Resource, example, json_or_yaml
from rune.server.responses import ApiError, Created, NotChanged, Reply, etag, expected, tags
from rune.server.routes.definitions import LayoutQuery, layout_view
from rune.server.routing import (
    ALIAS,
    PREFIX,
    YAML_TYPES,
    AliasName,
    Caller,
    IfMatch,
    IfNoneMatch,
    JsonBody,
    Omittable,
    Page,
    QueryModel,
    Server,
    VersionName,
    WorkflowId,
    check_json,
    media_type,
    offset,
)
from rune.server.schemas.comparison import changes
from rune.server.schemas.workflows import deployed, version_view, workflow_detail, workflow_view
from rune.server.views.statistics import RECENT

workflows = Resource("workflows")

MAX_INLINE_NODES = 50
"""A plan names the nodes before each node, so its size grows with their square."""

MAX_INLINE_PARSE_BYTES = 8 * 1024  # larger documents are parsed in a thread
MAX_SHORT_YAML_BYTES = 32 * 1024  # larger YAML waits for other large YAML only, and delays no other document
MAX_YAML_SECONDS = 10.0  # of CPU time: YAML takes a hundred times as long to parse as JSON

_EXAMPLE = {
    "id": "hello",
    "nodes": [
        {"id": "in", "type": "input"},
        {"id": "out", "type": "output", "parameters": {"value": "Hello, {{ $trigger.name }}!"}},
    ],
    "edges": [{"src": "in", "dst": "out"}],
}
DOCUMENT = json_or_yaml(_EXAMPLE)


class WorkflowQuery(Page):
    """Filters of the list of workflows."""

    hidden: bool = False
    activity: Annotated[
        bool, Field(description="Also return the newest outcomes and the durations of each workflow.")
    ] = False


class DeployQuery(QueryModel):
    """What is kept with a version, and an alias that is pointed at it in the same transaction."""

    alias: Omittable[
        Annotated[str, Field(pattern=ALIAS, description="Also point this alias at the version.")]
    ] = None
    note: Annotated[str, Field(max_length=MAX_NOTE_LENGTH, description="A note about the change.")] = ""


class VersionQuery(QueryModel):
    """The versions to compare."""

    before: str
    after: str = LATEST


class ValidateQuery(LayoutQuery):
    """What to compute besides the problems, also for an invalid document; the size of nodes for the layout."""

    plan: bool = False
    layout: bool = False


async def read_document(request: Request, server: Server) -> ValidationResult:
    """Read and validate the document in a body: YAML or JSON, by its media type."""
    data = await read_body(request, LIMITS.definition_bytes)
    suffix = "yaml" if media_type(request) in YAML_TYPES else "json"
    if suffix == "json":
        check_json(request, also=" or application/yaml")
    catalogue = server.engine.plans.catalogue

    def read() -> ValidationResult:
        return check_document(load_document(data, suffix, yaml_seconds=MAX_YAML_SECONDS), catalogue)

    if len(data) <= MAX_INLINE_PARSE_BYTES:
        try:
            with short_checks():
                return read()
        except NeedsThreadError:
            pass
    # One at a time and outside of the event loop, so that large documents delay only each other, and those of one key
    # delay those of another by one document.
    large_yaml = suffix == "yaml" and len(data) > MAX_SHORT_YAML_BYTES
    async with (server.parsing_yaml if large_yaml else server.parsing).take(request):
        return await off_loop(read)


Document = Annotated[ValidationResult, Depends(read_document)]


@workflows.post(
    "/workflows", requires="edit", body=DOCUMENT, responses={409: "A workflow with this id exists."}
)
async def create_workflow(
    document: Document, query: Annotated[DeployQuery, Query()], server: Server, caller: Caller
) -> Created[Deployed]:
    """Store a new workflow.

    The document contains the id. Its text is kept with the version. An archived workflow with this id is
    restored."""
    version, tag = await _deploy(server, caller, document, (NOTHING,), query)
    headers = {"Location": f"{PREFIX}/workflows/{version.workflow}", "ETag": tag}
    return Created(deployed(version, await _problems(server, caller, document)), headers)


@workflows.put(
    "/workflows/{workflow}",
    requires="edit",
    body=DOCUMENT,
    responses={201: "The workflow is new.", 409: "The precondition does not hold."},
)
async def update_workflow(
    workflow: WorkflowId,
    document: Document,
    query: Annotated[DeployQuery, Query()],
    server: Server,
    caller: Caller,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Reply[Deployed] | Created[Deployed]:
    """Store a new version of a workflow.

    Versions are immutable: creates the next one, or returns an existing one with the same content, and points
    `latest` at it. `position` and `notes` are not part of the content; the newest text is kept with the version.
    `If-Match` with the `ETag` fails if the text has changed; with the `hash` of the version if its content has."""
    named = definition_in(document).id
    if named != workflow:
        raise ApiError(f"the document has the id `{named}`, not `{workflow}`", code="OTHER_WORKFLOW")
    version, tag = await _deploy(server, caller, document, expected(if_match, if_none_match), query)
    first = version.number == 1 and version.change == "created"
    problems = await _problems(server, caller, document)
    return (Created if first else Reply)(deployed(version, problems), {"ETag": tag})


async def _problems(server: ServerContext, caller: Principal, document: ValidationResult) -> list[Problem]:
    """Return the problems of a document, with the children that are not deployed. Nothing is said about children that
    the caller may not see."""

    async def is_deployed(workflow: str, version: str | None) -> bool:
        return not caller.sees(workflow) or await is_stored(server.reader.workflows, workflow, version)

    return [*document.problems, *await undeployed_children(document, is_deployed)]


async def _deploy(
    server: ServerContext,
    caller: Principal,
    document: ValidationResult,
    expecting: Expected | None,
    query: DeployQuery,
) -> tuple[Version, str]:
    """Store the version and return it with its entity tag."""
    definition = definition_in(document)
    check_sees(caller, definition.id)
    source = None if document.source is None else version_source(document.source)
    try:
        version = await server.services.workflows.deploy(
            canonical(definition), alias=query.alias, expected=expecting, source=source, note=query.note
        )
        return version, _tag(version, source)
    except ConcurrentChangeError:
        if expecting != (NOTHING,):
            raise
        detail = f"workflow `{definition.id}` exists; PUT creates a new version"
        raise ApiError(detail, code="WORKFLOW_EXISTS") from None


@workflows.post("/workflows/validate", requires="view", body=DOCUMENT)
async def validate_workflow(
    request: Request,
    document: Document,
    query: Annotated[ValidateQuery, Query()],
    server: Server,
    caller: Caller,
) -> Reply[Checked]:
    """Validate a document without storing it.

    Returns all problems, including warnings; with `plan` what each node may mention, with `layout` the places of
    nodes and edges."""
    problems = await _problems(server, caller, document)
    nodes = 0 if document.definition is None else len(document.definition.nodes)
    if nodes <= MAX_INLINE_NODES:
        return Reply(_checked(document, query, problems))
    async with server.parsing.take(request):
        return Reply(await off_loop(lambda: bytes(Reply(_checked(document, query, problems)).body)))


def _checked(document: ValidationResult, query: ValidateQuery, problems: list[Problem]) -> Checked:
    definition = document.definition if document.valid else None
    layout: LayoutView | None = None
    if query.layout and document.graph is not None and _is_drawn(document):
        layout = layout_view(draw_definition(document), query)
    return Checked(
        valid=document.valid,
        workflow_id=None if definition is None else definition.id,
        hash=None if definition is None else content_hash(definition),
        problems=problems,
        plan=_planned(document) if query.plan else None,
        layout=layout,
    )


def _is_drawn(document: ValidationResult) -> bool:
    """Return whether the splits of a document, which may be invalid otherwise, are nested as deeply as they may be: the
    frames of deeper ones lie in each other, and are laid out by recursion."""
    scopes = document.scopes
    if scopes is None:
        return True
    return all(len(scopes.enclosing(at)) <= LIMITS.split_depth + 1 for at in range(len(scopes.split)))


def _planned(document: ValidationResult) -> dict[str, PlannedNode] | None:
    definition, graph, scopes = document.definition, document.graph, document.scopes
    if definition is None or graph is None or scopes is None or not _is_drawn(document):
        return None
    boxes, before = draw_definition(document).boxes, ancestors(graph)
    planned: dict[str, PlannedNode] = {}
    for at, node in enumerate(definition.nodes):
        around = {None, *scopes.enclosing(at)}
        split = scopes.split[at]
        planned[node.id] = PlannedNode(
            outlets=list(boxes[at].ports),
            split=None if split is None else graph.ids[split],
            mentions=[
                name
                for other, (name, is_before) in enumerate(
                    zip(graph.ids, f"{before[at]:b}"[::-1], strict=False)
                )
                if is_before == "1" and scopes.split[other] in around
            ],
        )
    return planned


@workflows.get("/workflows", requires="view")
async def list_workflows(
    query: Annotated[WorkflowQuery, Query()],
    server: Server,
    caller: Caller,
) -> Reply[WorkflowPage]:
    """List workflows, ordered by id.

    With `hidden`, archived workflows are included."""
    entries = await server.reader.workflows.list(hidden=query.hidden)
    sees = caller.sees
    found = [each for each in entries if each.workflow > (query.cursor or "") and sees(each.workflow)]
    page = found[: query.limit]
    following = page[-1].workflow if len(found) > query.limit else None
    views = [
        workflow_view(each, await activity_of(server, each.workflow) if query.activity else None)
        for each in page
    ]
    return Reply(WorkflowPage(workflows=views, next=following))


async def activity_of(server: ServerContext, workflow: str) -> WorkflowActivity:
    """Return what the newest executions of a workflow did."""
    newest = await server.statistics.source.recent(workflow, RECENT)
    taken = await server.statistics.quantiles(workflow)
    return WorkflowActivity(
        outcomes=[
            OutcomeView(
                execution_id=each.id,
                status=each.status,
                started_at=moment(each.started_at),
                total_duration_ms=None if each.ended_at is None else each.ended_at - each.started_at,
            )
            for each in newest
        ],
        measured=0 if taken is None else taken.count,
        p50_ms=None if taken is None else taken.p50_ms,
        p95_ms=None if taken is None else taken.p95_ms,
    )


@workflows.get("/workflows/{workflow}/activity", requires="view")
async def get_activity(workflow: WorkflowId, server: Server) -> Reply[WorkflowActivity]:
    """Get the newest outcomes and the durations of a workflow.

    The 20 newest executions, and quantiles of the durations of the 200 that ended last."""
    return Reply(await activity_of(server, workflow))


@workflows.get("/workflows/{workflow}", requires="view")
async def get_workflow(
    workflow: WorkflowId,
    server: Server,
    if_none_match: IfNoneMatch = None,
) -> Reply[WorkflowDetail] | NotChanged:
    """Get the latest version of a workflow.

    Includes the definition."""
    return await _version(server, workflow, None, if_none_match)


@workflows.get("/workflows/{workflow}/versions", requires="view")
async def list_versions(
    workflow: WorkflowId,
    query: Annotated[Page, Query()],
    server: Server,
) -> Reply[VersionPage]:
    """List the versions of a workflow.

    Oldest first, also for an archived workflow."""
    versions = await server.reader.workflows.versions(workflow)
    if not versions:
        raise workflow_not_found(workflow, (), LATEST)
    start = offset(query.cursor)
    page = versions[start : start + query.limit]
    more = start + query.limit < len(versions)
    following = str(start + query.limit) if more else None
    return Reply(VersionPage(versions=[version_view(each) for each in page], next=following))


@workflows.get("/workflows/{workflow}/versions/{version}", requires="view")
async def get_version(
    workflow: WorkflowId,
    version: VersionName,
    server: Server,
    if_none_match: IfNoneMatch = None,
) -> Reply[WorkflowDetail] | NotChanged:
    """Get a version of a workflow.

    By number or alias."""
    return await _version(server, workflow, version, if_none_match)


class SourceNotFoundError(RuneError):
    """A version has no text, because an older server stored it."""

    code = "NO_SOURCE"


@workflows.get(
    "/workflows/{workflow}/versions/{version}/source",
    requires="view",
    responses={200: {"content": {"application/yaml": {"schema": {}}, "application/json": {"schema": {}}}}},
)
async def get_source(
    workflow: WorkflowId,
    version: VersionName,
    server: Server,
    if_none_match: IfNoneMatch = None,
) -> Response | NotChanged:
    """Get the text that a version was deployed with.

    JSON or YAML, byte for byte, with comments and positions: the newest text with the content of the version."""
    found = await server.reader.workflows.find(workflow, version)
    source = await server.reader.workflows.source(workflow, found.number)
    if source is None:
        raise SourceNotFoundError(f"version {found.number} of `{workflow}` was stored without its text")
    tag = _tag(found, source)
    if tag in tags(if_none_match):
        return NotChanged(tag)
    headers = {"ETag": tag, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"}
    return Response(source.data, headers=headers, media_type=source.media_type)


async def _version(
    server: ServerContext, workflow: str, which: str | None, if_none_match: str | None
) -> Reply[WorkflowDetail] | NotChanged:
    version = await server.reader.workflows.find(workflow, which)
    tag = _tag(version, await server.reader.workflows.source(workflow, version.number))
    if tag in tags(if_none_match):
        return NotChanged(tag)
    return Reply(workflow_detail(version, await definition_of(server, version.hash)), headers={"ETag": tag})


def _tag(version: Version, source: VersionSource | None) -> str:
    """Return the entity tag of a version: that of its newest text, since texts with the same content share a version;
    its hash if it has no text."""
    return etag(version.hash if source is None else source.tag)


async def definition_of(server: ServerContext, hash: str) -> dict[str, Any]:
    """Load a definition by its hash."""
    data = await server.reader.definition(hash)
    if data is None:
        raise DefinitionNotFoundError(f"no definition has the hash {hash}")
    found: dict[str, Any] = read_json(data)
    return found


@workflows.get("/workflows/{workflow}/diff", requires="view")
async def compare_versions(
    workflow: WorkflowId,
    query: Annotated[VersionQuery, Query()],
    server: Server,
) -> Reply[Compared]:
    """Compare two versions.

    Lists the changes by node and field."""
    versions = await server.reader.workflows.versions(workflow)
    before, after = choose(workflow, versions, query.before), choose(workflow, versions, query.after)
    old, new = [await definition_of(server, each.hash) for each in (before, after)]
    return Reply(
        Compared(
            workflow_id=workflow,
            before=before.number,
            after=after.number,
            changes=changes(old, new),
        )
    )


@workflows.delete("/workflows/{workflow}", requires="edit")
async def delete_workflow(workflow: WorkflowId, server: Server) -> Reply[Archived]:
    """Archive a workflow.

    Keeps its versions and executions. Archiving again changes nothing."""
    changed = await server.services.workflows.archive(workflow)
    return Reply(Archived(workflow_id=workflow, changed=changed))


@workflows.post("/workflows/{workflow}/restore", requires="edit")
async def restore_workflow(workflow: WorkflowId, server: Server) -> Reply[Deployed]:
    """Restore an archived workflow.

    `latest` points at the same version as before."""
    versions = await server.reader.workflows.versions(workflow)
    latest = choose(workflow, versions, LATEST)
    return Reply(deployed(await server.services.workflows.set_alias(workflow, LATEST, latest.number), []))


aliases = Resource("workflows")
_INTEGER = re.compile(r"[1-9][0-9]{0,18}")


def _number(key: str) -> int | str:
    return int(key) if _INTEGER.fullmatch(key) else key


Number = Annotated[int, Field(ge=1, le=2**53)]
NumberKey = Annotated[Number, BeforeValidator(_number)]  # keys of a JSON object are strings
Percent = Annotated[float, Field(gt=0, le=100)]


class AliasBody(JsonBody):
    """The target of an alias. `weights` send a percentage of the starts to other versions. Without `version` the alias
    keeps its version."""

    version: Number | None = None
    weights: Annotated[dict[NumberKey, Percent], Field(max_length=16)] = Field(default={})


@aliases.get("/workflows/{workflow}/aliases", requires="view")
async def list_aliases(workflow: WorkflowId, server: Server) -> Reply[AliasList]:
    """List the aliases of a workflow.

    Includes the version and the weights of each alias."""
    found = await _list_aliases(server, workflow)
    return Reply(AliasList(aliases=[_alias_view(each) for each in found]))


@aliases.get("/workflows/{workflow}/aliases/{alias}", requires="view")
async def get_alias(
    workflow: WorkflowId,
    alias: AliasName,
    server: Server,
) -> Reply[AliasView]:
    """Get an alias of a workflow.

    Includes its version and weights."""
    found = await _get_alias(server, workflow, alias)
    return Reply(_alias_view(found), headers=_alias_tag(found))


@aliases.put(
    "/workflows/{workflow}/aliases/{alias}",
    requires="edit",
    responses={409: "The precondition does not hold."},
)
async def put_alias(
    workflow: WorkflowId,
    alias: AliasName,
    body: Annotated[AliasBody, Body(openapi_examples=example({"version": 2, "weights": {"3": 10}}))],
    server: Server,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatch = None,
) -> Reply[PointedAlias]:
    """Point an alias at a version.

    Running executions keep their version. A request without weights ends a gradual roll-out."""
    target = await server.services.workflows.set_alias(
        workflow,
        alias,
        body.version,
        weights=body.weights,
        expected=expected(if_match, if_none_match),
    )
    found = await _get_alias(server, workflow, alias)
    view = asdict(_alias_view(found))
    return Reply(
        PointedAlias(**view, change=target.change, target=version_view(target)), headers=_alias_tag(found)
    )


async def _list_aliases(server: ServerContext, workflow: str) -> list[Alias]:
    found = await server.engine.backend.workflows.aliases(workflow)
    if not found:
        raise workflow_not_found(workflow, (), LATEST)
    return found


async def _get_alias(server: ServerContext, workflow: str, alias: str) -> Alias:
    for each in await _list_aliases(server, workflow):
        if each.name == alias:
            return each
    raise workflow_not_found(workflow, await server.reader.workflows.versions(workflow), alias)


def _alias_tag(alias: Alias) -> dict[str, str]:
    return {"ETag": etag(str(alias.revision))}


def _alias_view(each: Alias) -> AliasView:
    return AliasView(alias=each.name, version=each.number, weights=each.weights, revision=each.revision)
