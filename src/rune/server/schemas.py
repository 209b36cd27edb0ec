"""Response types of the API, and functions that build them. `rune … --json` prints the same fields."""

from __future__ import annotations

from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from rune.core.definition.problems import Problem
from rune.core.execution.explain import Waiting
from rune.core.execution.outcome import Error
from rune.ports.clock import iso
from rune.ports.credentials import CredentialSummary
from rune.ports.journal import DeadLetter, ExecutionRecord
from rune.ports.queries import Event, Frame, NodeRun, Summary
from rune.ports.workflows import Trigger, Version, WorkflowEntry
from rune.runtime.queries.history import details_of
from rune.runtime.services.dead_letters import DeadMessage
from rune.runtime.services.workflows import RotatedSecret

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

MAX_INLINE_OUTPUT_BYTES = 64 * 1024  # larger outputs are left out of lists


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all response types. msgspec encodes them; FastAPI documents them through Pydantic."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return StructSchema().__get_pydantic_core_schema__(source, handler)


class StructSchema:
    """Tells Pydantic the fields of a msgspec struct: `Annotated[Problem, StructSchema()]`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema  # noqa: PLC0415 - `rune triggers` needs the views without Pydantic

        fields = {}
        for field in msgspec.structs.fields(source):
            schema = handler.generate_schema(_described(field.type))
            if field.default is not msgspec.NODEFAULT:
                schema = core_schema.with_default_schema(schema, default=field.default)
            fields[field.encode_name] = core_schema.typed_dict_field(schema, required=field.required)
        name = f"{source.__module__}.{source.__qualname__}:{id(source)}"
        return core_schema.typed_dict_schema(fields, cls=source, ref=name)


def _described(kind: Any) -> Any:
    """Return a type in which each struct is replaced by one that Pydantic can describe."""
    if kind is msgspec.Raw:
        return Any
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind if issubclass(kind, View) else Annotated[kind, StructSchema()]
    origin, inner = get_origin(kind), tuple(_described(each) for each in get_args(kind))
    if origin is None or origin is Literal:
        return kind
    return Union[inner] if origin is UnionType else origin[inner]  # noqa: UP007 - the members are in a tuple


class ItemView(View, frozen=True, kw_only=True):
    """An item of a split."""

    split_node_id: str
    item_index: int


class ErrorView(View, frozen=True, kw_only=True, omit_defaults=True):
    """An error of a node or of an execution. That of an execution names the node run it comes from, if it comes from
    one. `details.traceback` of a node run is the traceback of a custom node."""

    code: str
    message: str
    details: Any = None
    node_id: str | None = None
    node_type: str | None = None
    lineage: list[ItemView] | None = None
    attempt: int | None = None


class ExecutionView(View, frozen=True, kw_only=True):
    """An execution in a list."""

    execution_id: str
    workflow_id: str
    status: str
    error: ErrorView | None
    labels: dict[str, str]
    hash: str
    started_at: str
    completed_at: str | None
    total_duration_ms: int | None
    failed_items: int | None  # null until it has ended
    version: int | None  # null if its definition was not started as a deployed workflow
    alias: str | None  # the alias that selected the version; null if the start named the number


class ExecutionDetail(ExecutionView, frozen=True, kw_only=True):
    """An execution with all its details."""

    priority: int
    fake_time: bool
    key: str | None
    parent_id: str | None
    retry_of: str | None
    principal: str  # the key, the trigger or the parent execution that started it


class CountView(View, frozen=True, kw_only=True):
    """How many executions a filter selects, on all pages; an estimate unless `exact`."""

    value: int
    exact: bool


class ExecutionPage(View, frozen=True, kw_only=True):
    """A page of executions, newest first. A page may hold fewer than `limit` and still have a `next` cursor."""

    executions: list[ExecutionView]
    next: str | None
    count: CountView | None


class Started(View, frozen=True, kw_only=True):
    """An accepted execution. It is stored durably. `execution`: with `wait`, what it was when it had ended or the time
    was over."""

    execution_id: str
    workflow_id: str
    hash: str
    version: int | None
    alias: str | None
    started_at: str
    retry_of: str | None
    replayed: bool
    execution: ExecutionDetail | None = None


class VersionView(View, frozen=True, kw_only=True):
    """A version of a workflow. `principal` has deployed it first; null in versions of older servers."""

    version: int
    hash: str
    deployed_at: str
    aliases: list[str]
    principal: str | None
    note: str


class Deployed(VersionView, frozen=True, kw_only=True):
    """The result of a deployment: a new version, or an existing one with the same content."""

    workflow_id: str
    change: str
    problems: list[Problem]


class OutcomeView(View, frozen=True, kw_only=True):
    """One of the newest executions of a workflow."""

    execution_id: str
    status: str
    started_at: str
    total_duration_ms: int | None


class WorkflowActivity(View, frozen=True, kw_only=True):
    """The newest executions of a workflow, newest first, and quantiles of the durations of the `measured` ones that
    ended last; null if none has."""

    outcomes: list[OutcomeView]
    measured: int
    p50_ms: int | None
    p95_ms: int | None


class WorkflowView(View, frozen=True, kw_only=True):
    """A deployed workflow in a list. `activity` is null unless the request asks for it."""

    workflow_id: str
    name: str
    latest: int
    versions: int
    aliases: dict[str, int]
    deployed_at: str
    hidden: bool
    activity: WorkflowActivity | None


class WorkflowPage(View, frozen=True, kw_only=True):
    """A page of workflows, ordered by id."""

    workflows: list[WorkflowView]
    next: str | None


class VersionPage(View, frozen=True, kw_only=True):
    """A page of versions, oldest first."""

    versions: list[VersionView]
    next: str | None


class WorkflowDetail(VersionView, frozen=True, kw_only=True):
    """A version of a workflow with its definition."""

    workflow_id: str
    name: str
    definition: dict[str, Any]


class RunView(View, frozen=True, kw_only=True):
    """A node run in one lineage. `output` is null if it is too large for a list; `output_bytes` is its size. `pinned`:
    the output was given, and the node was not called."""

    node_id: str
    lineage: list[Frame]
    status: str
    attempts: int
    output: msgspec.Raw
    output_bytes: int
    error: ErrorView | None
    started_at: str | None
    duration_ms: int
    pinned: bool


class RunPage(View, frozen=True, kw_only=True):
    """A page of node runs in the order they ended; skipped nodes come last."""

    nodes: list[RunView]
    next: str | None


class EventView(View, frozen=True, kw_only=True):
    """An event, numbered without gaps within its execution."""

    number: int
    at: str
    kind: str
    node_id: str | None
    lineage: tuple[Frame, ...]
    details: dict[str, Any]


class EventPage(View, frozen=True, kw_only=True):
    """A page of events; `next` is the value of `after` for the next page, or of `before` if the newest come first."""

    events: list[EventView]
    next: int | None


class Explanation(View, frozen=True, kw_only=True):
    """What an execution is waiting for. `expected_by`: when an open execution is late, or since when (epoch ms)."""

    execution_id: str
    workflow_id: str
    status: str
    error: ErrorView | None
    waiting: list[Waiting]
    expected_by: int | None


class DeadLetterView(View, frozen=True, kw_only=True):
    """An execution that the engine gave up on."""

    id: str
    execution_id: str
    workflow_id: str
    node_id: str | None
    code: str
    message: str
    at: str


class DeadLetterPage(View, frozen=True, kw_only=True):
    """A page of dead letters, newest first."""

    dead_letters: list[DeadLetterView]
    next: str | None


class DeadMessageView(View, frozen=True, kw_only=True):
    """A message of the queue that no worker could process. `execution_id`, `workflow_id` and `node_id` are null if its
    body does not name them, `at` if the queue did not record the time."""

    id: str
    execution_id: str | None
    workflow_id: str | None
    node_id: str | None
    code: str
    message: str
    at: str | None
    queue: str


class DeadMessageDetail(DeadMessageView, frozen=True, kw_only=True):
    """A dead message with its body."""

    body: str


class DeadMessageList(View, frozen=True, kw_only=True):
    """Dead messages, oldest first."""

    dead_messages: list[DeadMessageView]


class RequeuedMessage(View, frozen=True, kw_only=True):
    """A dead message that was sent to its queue again; `count` is the number of identical ones."""

    id: str
    queue: str
    count: int


class CredentialView(View, frozen=True, kw_only=True):
    """A credential without its values. `key` is the name of its encryption key. `insecure` is null in credentials of
    older versions, which are sent over connections of any kind."""

    id: str
    name: str
    type: str
    version: int
    fields: list[str]
    hosts: list[str]
    insecure: bool | None
    key: str
    created_at: str
    changed_at: str


def moment(at: int) -> str:
    """Format epoch milliseconds as ISO 8601."""
    return iso(at) or ""


def error_view(error: Error | None) -> ErrorView | None:
    if error is None:
        return None
    view = ErrorView(code=error.code, message=error.message, details=details_of(error))
    origin = error.origin
    if origin is None:
        return view
    return msgspec.structs.replace(
        view,
        node_id=origin.node_id,
        node_type=origin.node_type,
        lineage=[ItemView(split_node_id=split, item_index=item) for split, item in origin.lineage],
        attempt=origin.attempt,
    )


def _fields(each: Summary) -> dict[str, Any]:
    return {
        "execution_id": each.id,
        "workflow_id": each.workflow,
        "status": each.status,
        "error": error_view(each.error),
        "labels": each.labels,
        "hash": each.hash,
        "started_at": moment(each.started_at),
        "completed_at": iso(each.ended_at),
        "total_duration_ms": each.ended_at - each.started_at if each.ended_at is not None else None,
        "failed_items": each.failed_items,
        "version": each.version,
        "alias": each.alias,
    }


def execution_view(each: Summary) -> ExecutionView:
    return ExecutionView(**_fields(each))


def execution_detail(each: Summary, accepted: ExecutionRecord) -> ExecutionDetail:
    return ExecutionDetail(
        **_fields(each),
        priority=accepted.priority,
        fake_time=accepted.fake_time,
        key=accepted.key,
        parent_id=accepted.parent.execution if accepted.parent is not None else None,
        retry_of=accepted.retry_of,
        principal=accepted.principal,
    )


def started(
    accepted: ExecutionRecord, *, replayed: bool = False, execution: ExecutionDetail | None = None
) -> Started:
    return Started(
        execution_id=accepted.id,
        workflow_id=accepted.workflow,
        hash=accepted.hash,
        version=accepted.version,
        alias=accepted.alias,
        started_at=moment(accepted.at),
        retry_of=accepted.retry_of,
        replayed=replayed,
        execution=execution,
    )


def version_view(version: Version) -> VersionView:
    return VersionView(**_version(version))


def deployed(version: Version, problems: list[Problem]) -> Deployed:
    return Deployed(
        **_version(version), workflow_id=version.workflow, change=version.change, problems=problems
    )


def workflow_detail(version: Version, definition: dict[str, Any]) -> WorkflowDetail:
    return WorkflowDetail(
        **_version(version),
        workflow_id=version.workflow,
        name=definition.get("name", ""),
        definition=definition,
    )


def _version(version: Version) -> dict[str, Any]:
    return {
        "version": version.number,
        "hash": version.hash,
        "deployed_at": moment(version.at),
        "aliases": list(version.aliases),
        "principal": version.principal,
        "note": version.note,
    }


def workflow_view(entry: WorkflowEntry, activity: WorkflowActivity | None = None) -> WorkflowView:
    return WorkflowView(
        workflow_id=entry.workflow,
        name=entry.name,
        latest=entry.latest,
        versions=entry.versions,
        aliases=entry.aliases,
        deployed_at=moment(entry.deployed_at),
        hidden=entry.hidden,
        activity=activity,
    )


def run_view(run: NodeRun, *, whole: bool = False) -> RunView:
    """Convert a node run; `whole` includes the output whatever its size."""
    output = b"null" if run.output is None else run.output
    size = len(output) if run.size is None else run.size
    shown = whole or size <= MAX_INLINE_OUTPUT_BYTES
    return RunView(
        node_id=run.node_id,
        lineage=list(run.lineage),
        status=run.status,
        attempts=run.attempts,
        output=msgspec.Raw(output if shown else b"null"),
        output_bytes=0 if run.output is None else size,
        error=error_view(run.error),
        started_at=iso(run.started_at),
        duration_ms=run.duration_ms,
        pinned=run.pinned,
    )


def event_view(event: Event) -> EventView:
    return EventView(
        number=event.number,
        at=moment(event.at),
        kind=event.kind,
        node_id=event.node_id,
        lineage=event.lineage,
        details=event.details,
    )


def letter_view(letter: DeadLetter) -> DeadLetterView:
    return DeadLetterView(
        id=letter.id,
        execution_id=letter.execution,
        workflow_id=letter.workflow,
        node_id=letter.node or None,
        code=letter.code,
        message=letter.message,
        at=moment(letter.at),
    )


def dead_message_view(each: DeadMessage) -> DeadMessageView:
    return DeadMessageView(**_dead_message(each))


def dead_message_detail(each: DeadMessage) -> DeadMessageDetail:
    return DeadMessageDetail(**_dead_message(each), body=each.body.decode(errors="replace"))


def _dead_message(each: DeadMessage) -> dict[str, Any]:
    return {
        "id": each.id,
        "execution_id": each.execution,
        "workflow_id": each.workflow,
        "node_id": each.node,
        "code": each.code,
        "message": each.reason,
        "at": None if each.at is None else moment(each.at),
        "queue": each.queue,
    }


def credential_view(each: CredentialSummary) -> CredentialView:
    return CredentialView(
        id=each.id,
        name=each.name,
        type=each.type,
        version=each.version,
        fields=list(each.fields),
        hosts=list(each.hosts),
        insecure=each.insecure,
        key=each.key,
        created_at=moment(each.created_at),
        changed_at=moment(each.changed_at),
    )


class HookView(View, frozen=True, kw_only=True):
    """A webhook. `path` is null for callers without the permission `run`. `secret` is its source:
    none, a credential, made for this trigger, or still missing."""

    path: str | None
    method: str
    auth: str
    secret: Literal["none", "credential", "made", "missing"]
    window: int
    respond: str


class ScheduleView(View, frozen=True, kw_only=True):
    """A schedule and its state. `waiting` counts starts that wait for the previous execution to end."""

    cron: str | None
    timezone: str
    every_ms: int | None
    catch_up: str
    overlap: str
    next_at: str | None
    waiting: int
    last_execution_id: str | None
    trouble: str


class TriggerView(View, frozen=True, kw_only=True):
    """A trigger of a workflow, as its followed version defines it."""

    id: str
    workflow_id: str
    node_id: str
    kind: Literal["webhook", "schedule"]
    version: int
    enabled: bool
    created_at: str
    webhook: HookView | None
    schedule: ScheduleView | None


class RotatedView(TriggerView, frozen=True, kw_only=True):
    """A trigger after a rotation. A new secret is returned only here."""

    new_secret: str | None


class TriggerList(View, frozen=True, kw_only=True):
    """Triggers, ordered by workflow and node."""

    triggers: list[TriggerView]


def trigger_view(trigger: Trigger, *, with_path: bool = True) -> TriggerView:
    """Convert a trigger, without the path of a webhook for callers that may not start executions."""
    return TriggerView(
        id=trigger.id,
        workflow_id=trigger.workflow,
        node_id=trigger.node,
        kind=trigger.kind,
        version=trigger.version,
        enabled=trigger.enabled,
        created_at=iso(trigger.at) or "",
        webhook=_hook(trigger, with_path=with_path),
        schedule=_schedule(trigger),
    )


def rotated_view(rotated: RotatedSecret) -> RotatedView:
    return RotatedView(**msgspec.structs.asdict(trigger_view(rotated.trigger)), new_secret=rotated.secret)


def _hook(trigger: Trigger, *, with_path: bool) -> HookView | None:
    hook = trigger.hook
    if hook is None:
        return None
    secret: Literal["none", "credential", "made", "missing"] = "none"
    if hook.auth != "none":
        secret = "made" if trigger.made_secret else "missing" if trigger.credential is None else "credential"
    return HookView(
        path=f"/hooks/{trigger.path}" if with_path else None,
        method=hook.method,
        auth=hook.auth,
        secret=secret,
        window=hook.window,
        respond=hook.respond,
    )


def _schedule(trigger: Trigger) -> ScheduleView | None:
    schedule, standing = trigger.schedule, trigger.standing
    if schedule is None:
        return None
    return ScheduleView(
        cron=schedule.cron,
        timezone=schedule.timezone,
        every_ms=schedule.every or None,
        catch_up=schedule.catch_up,
        overlap=schedule.overlap,
        next_at=iso(standing.next) if trigger.enabled else None,
        waiting=len(standing.waiting),
        last_execution_id=standing.last,
        trouble=trigger.trouble,
    )
