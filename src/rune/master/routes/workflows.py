"""Workflows: definitions under a name, in versions that never change."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.responses import Response

from rune.core.definition import canonical, content_hash
from rune.core.difference import Change, difference
from rune.core.limits import LIMITS
from rune.core.problem import Problem
from rune.core.validate import Verdict
from rune.documents import check_document, definition_in, load_document
from rune.master.access.scoping import check_sees
from rune.master.body import YAML_TYPES, check_json, media_type
from rune.master.operation import PREFIX, Call, Resource
from rune.master.paging import Page, offset
from rune.master.problems import ApiError
from rune.master.reply import Reply, etag, expected, no_content, not_changed, tags
from rune.master.service import Master
from rune.master.views import (
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
from rune.ports.library import LATEST, NOTHING, Changed, Expected, Version, choose, unknown
from rune.runtime.planbook import UnknownDefinition

workflows = Resource("workflows")

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


async def _verdict(call: Call) -> Verdict:
    """What is found in the document of a body: JSON, or YAML where it says so."""
    suffix = "json"
    if media_type(call.request) in YAML_TYPES:
        suffix = "yaml"
        if len(call.data) > YAML_BYTES:
            raise ApiError(f"at most {YAML_BYTES:,} bytes of YAML; send it as JSON", code="TOO_LARGE")
    else:
        check_json(call.request, also=" or application/yaml")
    catalogue = call.master.engine.plans.catalogue

    def read() -> Verdict:
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
async def create(call: Call) -> Response:
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
async def update(call: Call) -> Response:
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


async def _deploy(call: Call, verdict: Verdict, expecting: Expected | None) -> Version:
    definition = definition_in(verdict)
    check_sees(call.principal, definition.id)
    try:
        return await call.master.desk.deploy(canonical(definition), expected=expecting)
    except Changed:
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
async def validate(call: Call) -> Response:
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
async def list_workflows(call: Call) -> Response:
    """With `hidden` also those that were deleted."""
    query: WorkflowQuery = call.query
    entries = await call.master.reader.library.entries(hidden=query.hidden)
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
async def get_workflow(call: Call) -> Response:
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
async def list_versions(call: Call) -> Response:
    """The oldest first, also of a workflow that was deleted."""
    workflow = call.path["workflow"]
    versions = await call.master.reader.library.versions(workflow)
    if not versions:
        raise unknown(workflow, (), LATEST)
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
async def get_version(call: Call) -> Response:
    """By its number or by an alias."""
    return await _version(call, call.path["version"])


async def _version(call: Call, which: str | None) -> Response:
    version = await call.master.reader.library.find(call.path["workflow"], which)
    tag = etag(version.hash)
    if tag in tags(call.header("if-none-match")):
        return not_changed(tag)
    return Reply(
        workflow_detail(version, await definition_of(call.master, version.hash)), headers={"ETag": tag}
    )


async def definition_of(master: Master, hash: str) -> dict[str, Any]:
    """A definition as plain data."""
    data = await master.reader.definition(hash)
    if data is None:
        raise UnknownDefinition(f"no definition has the hash {hash}")
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
async def compare(call: Call) -> Response:
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
async def delete(call: Call) -> Response:
    """Its versions stay, and so do its executions. Deleted again, it is as deleted."""
    await call.master.desk.hide(call.path["workflow"])
    return no_content()


@workflows(
    "POST", "/workflows/{workflow}/restore", "Bring back a deleted workflow", need="edit", answer=Deployed
)
async def restore(call: Call) -> Response:
    """`latest` is where it was."""
    workflow = call.path["workflow"]
    versions = await call.master.reader.library.versions(workflow)
    latest = choose(workflow, versions, LATEST)
    return Reply(deployed(await call.master.desk.point(workflow, LATEST, latest.number), []))
