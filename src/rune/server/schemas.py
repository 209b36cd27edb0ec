"""Views: what the API answers, as types. The same fields that `rune … --json` prints.

Triggers as the API and the command line show them.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from rune.core.definition.problems import Problem
from rune.core.execution.explain import Waiting
from rune.core.execution.outcome import Error
from rune.ports.credentials import CredentialSummary
from rune.ports.journal import DeadLetter, ExecutionRecord
from rune.ports.queries import Event, Frame, NodeRun, Summary
from rune.ports.triggers import Trigger
from rune.ports.workflows import Version, WorkflowEntry
from rune.runtime.queries.history import iso
from rune.runtime.services.triggers import RotatedSecret

MAX_INLINE_OUTPUT_BYTES = 64 * 1024
"""Larger outputs are left out of lists; they are asked for one by one."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all answers."""


class ErrorView(View, frozen=True, kw_only=True):
    """An error of a node or of an execution."""

    code: str
    message: str
    details: Any = None


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


class ExecutionDetail(ExecutionView, frozen=True, kw_only=True):
    """An execution by itself."""

    priority: int
    fake_time: bool
    key: str | None
    parent_id: str | None
    retry_of: str | None
    principal: str  # who started it, or the execution around it


class ExecutionPage(View, frozen=True, kw_only=True):
    """A page of executions, newest first. `next` leads on; a page may be short and still have one."""

    executions: list[ExecutionView]
    next: str | None


class Started(View, frozen=True, kw_only=True):
    """An execution that was accepted. It is durable."""

    execution_id: str
    workflow_id: str
    hash: str
    started_at: str
    retry_of: str | None
    replayed: bool


class VersionView(View, frozen=True, kw_only=True):
    """One version of a workflow."""

    version: int
    hash: str
    deployed_at: str
    aliases: list[str]


class Deployed(VersionView, frozen=True, kw_only=True):
    """A version that was stored, or that was there already."""

    workflow_id: str
    change: str
    problems: list[Problem]


class WorkflowView(View, frozen=True, kw_only=True):
    """A stored workflow in a list."""

    workflow_id: str
    name: str
    latest: int
    versions: int
    aliases: dict[str, int]
    deployed_at: str
    hidden: bool


class WorkflowPage(View, frozen=True, kw_only=True):
    """A page of workflows by name."""

    workflows: list[WorkflowView]
    next: str | None


class VersionPage(View, frozen=True, kw_only=True):
    """A page of versions, the oldest first."""

    versions: list[VersionView]
    next: str | None


class WorkflowDetail(VersionView, frozen=True, kw_only=True):
    """One version of a workflow with its definition."""

    workflow_id: str
    name: str
    definition: dict[str, Any]


class RunView(View, frozen=True, kw_only=True):
    """One node in one lineage. `output` is null where it is larger than a list shows: `output_bytes` says so."""

    node_id: str
    lineage: list[Frame]
    status: str
    attempts: int
    output: msgspec.Raw
    output_bytes: int
    error: ErrorView | None
    started_at: str | None
    duration_ms: int


class RunPage(View, frozen=True, kw_only=True):
    """A page of node runs in the order they ended, what was skipped last."""

    nodes: list[RunView]
    next: str | None


class EventView(View, frozen=True, kw_only=True):
    """Something that happened, numbered without gaps within its execution."""

    number: int
    at: str
    kind: str
    node_id: str | None
    lineage: tuple[Frame, ...]
    details: dict[str, Any]


class EventPage(View, frozen=True, kw_only=True):
    """A page of events; `next` is the number to go on behind."""

    events: list[EventView]
    next: int | None


class Explanation(View, frozen=True, kw_only=True):
    """Why an execution is where it is."""

    execution_id: str
    workflow_id: str
    status: str
    error: ErrorView | None
    waiting: list[Waiting]


class LetterView(View, frozen=True, kw_only=True):
    """An execution that the engine gave up on."""

    id: str
    execution_id: str
    workflow_id: str
    node_id: str | None
    code: str
    message: str
    at: str


class LetterPage(View, frozen=True, kw_only=True):
    """A page of dead letters, newest first."""

    dead_letters: list[LetterView]
    next: str | None


class CredentialView(View, frozen=True, kw_only=True):
    """What may be told of a credential: everything but its values. `key` is the name of what seals it."""

    id: str
    name: str
    type: str
    version: int
    fields: list[str]
    hosts: list[str]
    key: str
    created_at: str
    changed_at: str


def moment(at: int) -> str:
    """Epoch ms as ISO 8601 text."""
    return iso(at) or ""


def error_view(error: Error | None) -> ErrorView | None:
    """An error as the API shows it."""
    return None if error is None else ErrorView(code=error.code, message=error.message, details=error.details)


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
    }


def execution_view(each: Summary) -> ExecutionView:
    """An execution in a list."""
    return ExecutionView(**_fields(each))


def execution_detail(each: Summary, accepted: ExecutionRecord) -> ExecutionDetail:
    """An execution by itself."""
    return ExecutionDetail(
        **_fields(each),
        priority=accepted.priority,
        fake_time=accepted.fake_time,
        key=accepted.key,
        parent_id=accepted.parent.execution if accepted.parent is not None else None,
        retry_of=accepted.retry_of,
        principal=accepted.principal,
    )


def started(accepted: ExecutionRecord, *, replayed: bool = False) -> Started:
    """An execution that was accepted."""
    return Started(
        execution_id=accepted.id,
        workflow_id=accepted.workflow,
        hash=accepted.hash,
        started_at=moment(accepted.at),
        retry_of=accepted.retry_of,
        replayed=replayed,
    )


def version_view(version: Version) -> VersionView:
    """A version of a workflow."""
    return VersionView(**_version(version))


def deployed(version: Version, problems: list[Problem]) -> Deployed:
    """What became of a deploy."""
    return Deployed(
        **_version(version), workflow_id=version.workflow, change=version.change, problems=problems
    )


def workflow_detail(version: Version, definition: dict[str, Any]) -> WorkflowDetail:
    """A version with its definition."""
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
    }


def workflow_view(entry: WorkflowEntry) -> WorkflowView:
    """A workflow in a list."""
    return WorkflowView(
        workflow_id=entry.workflow,
        name=entry.name,
        latest=entry.latest,
        versions=entry.versions,
        aliases=entry.aliases,
        deployed_at=moment(entry.deployed_at),
        hidden=entry.hidden,
    )


def run_view(run: NodeRun, *, whole: bool = False) -> RunView:
    """A node run; `whole`: its output however large."""
    output = b"null" if run.output is None else run.output
    shown = whole or len(output) <= MAX_INLINE_OUTPUT_BYTES
    return RunView(
        node_id=run.node_id,
        lineage=list(run.lineage),
        status=run.status,
        attempts=run.attempts,
        output=msgspec.Raw(output if shown else b"null"),
        output_bytes=0 if run.output is None else len(run.output),
        error=error_view(run.error),
        started_at=iso(run.started_at),
        duration_ms=run.duration_ms,
    )


def event_view(event: Event) -> EventView:
    """An event as the API shows it."""
    return EventView(
        number=event.number,
        at=moment(event.at),
        kind=event.kind,
        node_id=event.node_id,
        lineage=event.lineage,
        details=event.details,
    )


def letter_view(letter: DeadLetter) -> LetterView:
    """A dead letter."""
    return LetterView(
        id=letter.id,
        execution_id=letter.execution,
        workflow_id=letter.workflow,
        node_id=letter.node or None,
        code=letter.code,
        message=letter.message,
        at=moment(letter.at),
    )


def credential_view(each: CredentialSummary) -> CredentialView:
    """A credential without its values."""
    return CredentialView(
        id=each.id,
        name=each.name,
        type=each.type,
        version=each.version,
        fields=list(each.fields),
        hosts=list(each.hosts),
        key=each.key,
        created_at=moment(each.created_at),
        changed_at=moment(each.changed_at),
    )


class HookView(View, frozen=True, kw_only=True):
    """A hook. `path` is told to those who may start executions. `secret`: nobody's, a credential's, made for this
    trigger, or still missing."""

    path: str | None
    method: str
    auth: str
    secret: Literal["none", "credential", "made", "missing"]
    window: int
    respond: str


class ScheduleView(View, frozen=True, kw_only=True):
    """A schedule, and how far it is. `waiting` counts ticks that wait for the execution before."""

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
    """A trigger of the version that is followed."""

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
    """A trigger after a rotation. A new secret is told this once."""

    new_secret: str | None


class TriggerList(View, frozen=True, kw_only=True):
    """All triggers by workflow and node."""

    triggers: list[TriggerView]


def trigger_view(trigger: Trigger, *, with_path: bool = True) -> TriggerView:
    """A trigger. Whoever knows the path of a hook may start executions with it."""
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
    """A trigger after a rotation, with a secret that was made."""
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
