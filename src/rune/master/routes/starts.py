"""Starts: what is accepted is durable before it is answered."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rune.core.limits import LIMITS
from rune.master.access.scoping import check_definition
from rune.master.operation import PREFIX, Call, Resource
from rune.master.problems import ApiError
from rune.master.reply import Reply
from rune.master.views import Started, started
from rune.ports.journal import Accepted
from rune.ports.library import LATEST, unknown
from rune.runtime.launcher import Options, new_execution_id

starts = Resource("starts")

MOST_LABELS = 64
START_BYTES = LIMITS.payload_bytes + LIMITS.definition_bytes + 64 * 1024

ALSO = {
    200: "The key was used before: this is what it started.",
    429: "A limit refuses it; `Retry-After` says for how many seconds.",
}

LabelName = Annotated[str, Meta(min_length=1, max_length=128)]
LabelValue = Annotated[str, Meta(max_length=1_024)]
Labels = Annotated[dict[LabelName, LabelValue], Meta(max_length=MOST_LABELS)]
Priority = Annotated[int, Meta(ge=0, le=10)]
Which = Annotated[str, Meta(min_length=1, max_length=128, description="A version number or an alias.")]
Id = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,128}$")]


def _nothing() -> msgspec.Raw:
    return msgspec.Raw(b"{}")


class StartBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to start a stored workflow. Nothing has to be given."""

    input: msgspec.Raw = msgspec.field(default_factory=_nothing)
    version: Which | None = None
    labels: Labels = {}
    priority: Priority | None = None
    fake_time: bool = False


class AnyStartBody(StartBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to start a stored workflow by its name, or a definition that is stored nowhere."""

    workflow: Id | None = None
    definition: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


def key_of(call: Call) -> str | None:
    """The key under which something is done once."""
    key = call.header("idempotency-key")
    if key is not None and not (0 < len(key) <= 255 and key.isascii() and key.isprintable()):
        raise ApiError("Idempotency-Key: 1 to 255 printable characters", code="BAD_HEADER")
    return key


def accepted_reply(accepted: Accepted, *, replayed: bool = False) -> Response:
    """An execution that was accepted, now or before."""
    place = {"Location": f"{PREFIX}/executions/{accepted.id}"}
    return Reply(started(accepted, replayed=replayed), 200 if replayed else 202, place)


@starts(
    "POST",
    "/workflows/{workflow}/executions",
    "Start a stored workflow",
    need="run",
    body=StartBody,
    limit=START_BYTES,
    optional=True,
    answer=Started,
    status=202,
    also=ALSO,
    headers=("Idempotency-Key",),
    example={"input": {"name": "World"}, "version": "stable", "labels": {"customer": "7"}},
)
async def start_workflow(call: Call) -> Response:
    """Start the version that is named, or the latest."""
    return await _start(call, call.path["workflow"], call.body)


@starts(
    "POST",
    "/executions",
    "Start a workflow by its name, or a definition",
    need="run",
    body=AnyStartBody,
    limit=START_BYTES,
    answer=Started,
    status=202,
    also=ALSO,
    headers=("Idempotency-Key",),
    example={"workflow": "hello", "input": {"name": "World"}},
)
async def start_anything(call: Call) -> Response:
    """Either `workflow` or `definition` says what."""
    body: AnyStartBody = call.body
    definition = bytes(body.definition)
    if definition:  # whoever brings a definition has written one
        call.require("edit")
        check_definition(call.principal, definition)
    if (body.workflow is None) == (not definition):
        raise ApiError("body: give `workflow` or `definition`, one of them", code="BAD_BODY")
    if body.workflow is not None:
        return await _start(call, body.workflow, body)
    if body.version is not None or body.priority is not None:
        raise ApiError("body: `version` and `priority` belong to a stored workflow", code="BAD_BODY")
    options, name = _named(call, body)
    accepted = await call.master.desk.run(definition, bytes(body.input), options, execution=name)
    return accepted_reply(accepted, replayed=name is not None and accepted.id != name)


async def _start(call: Call, workflow: str, body: StartBody) -> Response:
    if not call.principal.sees(workflow):
        raise unknown(workflow, (), LATEST)
    options, name = _named(call, body)
    accepted = await call.master.desk.start(
        workflow, body.version, bytes(body.input), options, priority=body.priority, execution=name
    )
    return accepted_reply(accepted, replayed=name is not None and accepted.id != name)


def _named(call: Call, body: StartBody) -> tuple[Options, str | None]:
    """The options of a start. One with a key is given its id here, by which an earlier one is told from it."""
    key = key_of(call)
    options = Options(key=key, labels=body.labels, fake_time=body.fake_time)
    return options, None if key is None else new_execution_id()
