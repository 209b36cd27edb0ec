"""Workflows: definitions under a name, in versions that never change.

Definitions by their hash, and blobs: what never changes.

Aliases: names that point at versions, and weights that send a part of the starts elsewhere.
"""

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

SMALL = 8 * 1024
YAML_BYTES = 256 * 1024
"""YAML takes a hundred times as long to read as JSON."""

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


class WorkflowQuery(Page, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which workflows are wanted."""

    hidden: bool = False


class VersionQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two versions to be compared."""

    before: str
    after: str = LATEST


class Checked(View, frozen=True, kw_only=True):
    """What was found in a document; `hash` is null where it is refused."""

    valid: bool
    workflow_id: str | None
    hash: str | None
    problems: list[Problem]


class Compared(View, frozen=True, kw_only=True):
    """What changed between two definitions."""

    workflow_id: str
    before: int
    after: int
    changes: list[Change]


async def _verdict(call: RequestContext) -> ValidationResult:
    """What is found in the document of a body: JSON, or YAML where it says so."""
    suffix = "json"
    if media_type(call.request) in YAML_TYPES:
        suffix = "yaml"
        if len(call.data) > YAML_BYTES:
            raise ApiError(f"at most {YAML_BYTES:,} bytes of YAML; send it as JSON", code="TOO_LARGE")
    else:
        check_json(call.request, also=" or application/yaml")
    catalogue = call.master.engine.plans.catalogue

    def read() -> ValidationResult:
        return check_document(load_document(call.data, suffix), catalogue)

    if len(call.data) <= SMALL:
        return read()
    async with (
        call.master.parsing
    ):  # one at a time, beside the loop: whoever sends much waits, nobody else does
        return await asyncio.to_thread(read)


@workflows(
    "POST",
    "/workflows",
    "Store a new workflow",
    need="edit",
    answer=Deployed,
    status=201,
    also={409: "A workflow of this id is there."},
    **DOCUMENT,
)
async def create(call: RequestContext) -> Response:
    """The id is the document's own. A hidden workflow of this id is shown again."""
    verdict = await _verdict(call)
    version = await _deploy(call, verdict, (NOTHING,))
    place = {"Location": f"{PREFIX}/workflows/{version.workflow}", "ETag": etag(version.hash)}
    return Reply(deployed(version, list(verdict.problems)), 201, place)


@workflows(
    "PUT",
    "/workflows/{workflow}",
    "Store a new version of a workflow",
    need="edit",
    answer=Deployed,
    also={201: "It is the first version.", 409: "It is not what `If-Match` says."},
    headers=("If-Match", "If-None-Match"),
    **DOCUMENT,
)
async def update(call: RequestContext) -> Response:
    """Versions never change: this makes the next one, or finds the one that says the same. `latest` points at it."""
    verdict = await _verdict(call)
    workflow = call.path["workflow"]
    named = definition_in(verdict).id
    if named != workflow:
        raise ApiError(f"the document is `{named}`, not `{workflow}`", code="OTHER_WORKFLOW")
    version = await _deploy(call, verdict, expected(call.header("if-match"), call.header("if-none-match")))
    first = version.number == 1 and version.change == "created"
    return Reply(
        deployed(version, list(verdict.problems)), 201 if first else 200, {"ETag": etag(version.hash)}
    )


async def _deploy(call: RequestContext, verdict: ValidationResult, expecting: Expected | None) -> Version:
    definition = definition_in(verdict)
    check_sees(call.principal, definition.id)
    try:
        return await call.master.services.workflows.deploy(canonical(definition), expected=expecting)
    except ConcurrentChangeError:
        if expecting != (NOTHING,):
            raise
        said = f"workflow `{definition.id}` is there already; PUT makes a new version of it"
        raise ApiError(said, code="WORKFLOW_EXISTS") from None


@workflows(
    "POST",
    "/workflows/validate",
    "Check a document without storing it",
    need="view",
    answer=Checked,
    **DOCUMENT,
)
async def validate(call: RequestContext) -> Response:
    """Every problem at once, warnings too."""
    verdict = await _verdict(call)
    definition = verdict.definition if verdict.valid else None
    return Reply(
        Checked(
            valid=verdict.valid,
            workflow_id=None if definition is None else definition.id,
            hash=None if definition is None else content_hash(definition),
            problems=list(verdict.problems),
        )
    )


@workflows("GET", "/workflows", "List workflows by id", need="view", query=WorkflowQuery, answer=WorkflowPage)
async def list_workflows(call: RequestContext) -> Response:
    """With `hidden` also those that were deleted."""
    query: WorkflowQuery = call.query
    entries = await call.master.reader.library.list(hidden=query.hidden)
    sees = call.principal.sees
    found = [each for each in entries if each.workflow > (query.cursor or "") and sees(each.workflow)]
    page = found[: query.limit]
    following = page[-1].workflow if len(found) > query.limit else None
    return Reply(WorkflowPage(workflows=[workflow_view(each) for each in page], next=following))


@workflows(
    "GET",
    "/workflows/{workflow}",
    "The latest version of a workflow",
    need="view",
    answer=WorkflowDetail,
    also={304: "It is what `If-None-Match` says."},
    headers=("If-None-Match",),
)
async def get_workflow(call: RequestContext) -> Response:
    """With its definition."""
    return await _version(call, None)


@workflows(
    "GET",
    "/workflows/{workflow}/versions",
    "List the versions of a workflow",
    need="view",
    query=Page,
    answer=VersionPage,
)
async def list_versions(call: RequestContext) -> Response:
    """The oldest first, also of a workflow that was deleted."""
    workflow = call.path["workflow"]
    versions = await call.master.reader.library.versions(workflow)
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
    "One version of a workflow",
    need="view",
    answer=WorkflowDetail,
    also={304: "It is what `If-None-Match` says."},
    headers=("If-None-Match",),
)
async def get_version(call: RequestContext) -> Response:
    """By its number or by an alias."""
    return await _version(call, call.path["version"])


async def _version(call: RequestContext, which: str | None) -> Response:
    version = await call.master.reader.library.find(call.path["workflow"], which)
    tag = etag(version.hash)
    if tag in tags(call.header("if-none-match")):
        return not_changed(tag)
    return Reply(
        workflow_detail(version, await definition_of(call.master, version.hash)), headers={"ETag": tag}
    )


async def definition_of(master: ServerContext, hash: str) -> dict[str, Any]:
    """A definition as plain data."""
    data = await master.reader.definition(hash)
    if data is None:
        raise DefinitionNotFoundError(f"no definition has the hash {hash}")
    found: dict[str, Any] = msgspec.json.decode(data)
    return found


@workflows(
    "GET",
    "/workflows/{workflow}/diff",
    "What changed between two versions",
    need="view",
    query=VersionQuery,
    answer=Compared,
)
async def compare(call: RequestContext) -> Response:
    """Node by node, field by field."""
    workflow, query = call.path["workflow"], call.query
    versions = await call.master.reader.library.versions(workflow)
    before, after = choose(workflow, versions, query.before), choose(workflow, versions, query.after)
    old, new = [await definition_of(call.master, each.hash) for each in (before, after)]
    return Reply(
        Compared(
            workflow_id=workflow,
            before=before.number,
            after=after.number,
            changes=list(difference(old, new)),
        )
    )


@workflows("DELETE", "/workflows/{workflow}", "Take a workflow out of sight", need="edit", status=204)
async def delete(call: RequestContext) -> Response:
    """Its versions stay, and so do its executions. Deleted again, it is as deleted."""
    await call.master.services.workflows.archive(call.path["workflow"])
    return no_content()


@workflows(
    "POST", "/workflows/{workflow}/restore", "Bring back a deleted workflow", need="edit", answer=Deployed
)
async def restore(call: RequestContext) -> Response:
    """`latest` is where it was."""
    workflow = call.path["workflow"]
    versions = await call.master.reader.library.versions(workflow)
    latest = choose(workflow, versions, LATEST)
    return Reply(
        deployed(await call.master.services.workflows.set_alias(workflow, LATEST, latest.number), [])
    )


definitions = Router("definitions")

FOREVER = "private, max-age=31536000, immutable"


class BlobNotFoundError(RuneError):
    """A key under which an execution keeps nothing."""

    code = "UNKNOWN_BLOB"


@definitions(
    "GET",
    "/definitions/{hash}",
    "A definition by its hash",
    need="view",
    answer=Any,
    also={304: "It is what `If-None-Match` says."},
    headers=("If-None-Match",),
)
async def get_definition(call: RequestContext) -> Response:
    """In canonical form, of whichever workflow or execution."""
    hash = call.path["hash"]
    if call.header("if-none-match") == etag(hash):
        return not_changed(etag(hash))
    data = await call.master.reader.definition(hash)
    if data is None:
        raise DefinitionNotFoundError(f"no definition has the hash {hash}")
    return Reply(data, headers={"ETag": etag(hash), "Cache-Control": FOREVER})


@definitions(
    "GET",
    "/executions/{execution}/blobs/{key:path}",
    "A large value of an execution",
    need="view",
    answer=bytes,
    answers="application/octet-stream",
)
async def get_blob(call: RequestContext) -> Response:
    """By the rest of its key."""
    accepted = await call.master.reader.accepted(call.path["execution"])
    data = await call.master.engine.backend.blob.get(f"{accepted.id}/{call.path['key']}")
    if data is None:
        raise BlobNotFoundError(f"{accepted.id} keeps nothing under `{call.path['key'][:120]}`")
    headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": FOREVER}
    return Response(data, headers=headers, media_type="application/octet-stream")


aliases = Router("workflows")

Number = Annotated[int, Meta(ge=1, le=2**53)]
Percent = Annotated[float, Meta(gt=0, le=100)]


class AliasBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where an alias points; with `weights` so many percent of the starts go to other versions. Left out, the version
    stays what it is."""

    version: Number | None = None
    weights: Annotated[dict[Number, Percent], Meta(max_length=16)] = {}


class AliasView(View, frozen=True, kw_only=True):
    """An alias. The starts that no weight takes go to `version`; `revision` counts its changes."""

    alias: str
    version: int
    weights: dict[int, float]
    revision: int


class AliasList(View, frozen=True, kw_only=True):
    """All aliases of a workflow."""

    aliases: list[AliasView]


@aliases(
    "GET", "/workflows/{workflow}/aliases", "List the aliases of a workflow", need="view", answer=AliasList
)
async def list_aliases(call: RequestContext) -> Response:
    """With the version that each points at, and its weights."""
    found = await _all(call)
    return Reply(AliasList(aliases=[_view(each) for each in found]))


@aliases(
    "GET", "/workflows/{workflow}/aliases/{alias}", "One alias of a workflow", need="view", answer=AliasView
)
async def get_alias(call: RequestContext) -> Response:
    """Where it points, and its weights."""
    return await _one(call)


@aliases(
    "PUT",
    "/workflows/{workflow}/aliases/{alias}",
    "Let an alias point at a version",
    need="edit",
    body=AliasBody,
    answer=AliasView,
    also={409: "It is not what `If-Match` says."},
    headers=("If-Match", "If-None-Match"),
    example={"version": 2, "weights": {"3": 10}},
)
async def put_alias(call: RequestContext) -> Response:
    """Executions that run keep their version. Without weights a roll-out ends; going back is the same call."""
    body: AliasBody = call.body
    await call.master.services.workflows.set_alias(
        call.path["workflow"],
        call.path["alias"],
        body.version,
        weights=body.weights,
        expected=expected(call.header("if-match"), call.header("if-none-match")),
    )
    return await _one(call)


async def _all(call: RequestContext) -> list[Alias]:
    workflow = call.path["workflow"]
    found = await call.master.engine.backend.library.aliases(workflow)
    if not found:
        raise workflow_not_found(workflow, (), LATEST)
    return found


async def _one(call: RequestContext) -> Response:
    workflow, alias = call.path["workflow"], call.path["alias"]
    for each in await _all(call):
        if each.name == alias:
            return Reply(_view(each), headers={"ETag": etag(str(each.revision))})
    raise workflow_not_found(workflow, await call.master.reader.library.versions(workflow), alias)


def _view(each: Alias) -> AliasView:
    return AliasView(alias=each.name, version=each.number, weights=each.weights, revision=each.revision)
