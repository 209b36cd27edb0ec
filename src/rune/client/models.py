"""What a server answers, as types. Fields that a newer server adds are passed over."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

ENDED = frozenset({"completed", "failed", "halted", "cancelled"})


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all answers."""


class Page(Model, frozen=True, kw_only=True):
    """A part of a list. `next` leads on, and is None on the last."""

    next: str | None = None


class ErrorInfo(Model, frozen=True, kw_only=True):
    """An error of a node or of an execution."""

    code: str
    message: str
    details: Any = None


class Execution(Model, frozen=True, kw_only=True):
    """An execution."""

    execution_id: str
    workflow_id: str
    status: str
    hash: str
    started_at: str
    completed_at: str | None = None
    total_duration_ms: int | None = None
    error: ErrorInfo | None = None
    labels: dict[str, str] = {}
    priority: int | None = None
    fake_time: bool = False
    key: str | None = None
    parent_id: str | None = None
    retry_of: str | None = None
    principal: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.status in ENDED


class ExecutionPage(Page, frozen=True, kw_only=True):
    """A page of executions."""

    executions: list[Execution]


class Started(Model, frozen=True, kw_only=True):
    """An execution that was accepted. `replayed`: its key was used before."""

    execution_id: str
    workflow_id: str
    hash: str
    started_at: str
    retry_of: str | None = None
    replayed: bool = False


class ActionResult(Model, frozen=True, kw_only=True):
    """What was done; `changed` is false where it was so already."""

    execution_id: str
    status: str
    changed: bool


class SignalResult(Model, frozen=True, kw_only=True):
    """A signal that was taken down, and whether somebody was waiting for it."""

    id: str
    resumed: bool


class Frame(Model, frozen=True, kw_only=True):
    """Which item of which split."""

    split_node_id: str
    branch_id: str
    item_index: int
    total_items: int


class NodeRun(Model, frozen=True, kw_only=True):
    """One node in one lineage. `output` is None where it is too large for a list: `output_bytes` says so."""

    node_id: str
    status: str
    lineage: tuple[Frame, ...] = ()
    attempts: int = 0
    output: Any = None
    output_bytes: int = 0
    error: ErrorInfo | None = None
    started_at: str | None = None
    duration_ms: int = 0


class NodeRunPage(Page, frozen=True, kw_only=True):
    """A page of node runs."""

    nodes: list[NodeRun]


class Event(Model, frozen=True, kw_only=True):
    """Something that happened, numbered without gaps within its execution."""

    number: int
    at: str
    kind: str
    node_id: str | None = None
    lineage: tuple[Frame, ...] = ()
    details: dict[str, Any] = {}

    @property
    def ends(self) -> bool:
        """Whether the execution has ended with it."""
        return self.kind.startswith("execution.") and self.kind.removeprefix("execution.") in ENDED


class Waiting(Model, frozen=True, kw_only=True):
    """Something that has not ended yet, and what it waits for."""

    node: str
    lineage: str
    reason: str
    arrived: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    due: int | None = None
    done: int | None = None
    total: int | None = None


class Explanation(Model, frozen=True, kw_only=True):
    """Why an execution is where it is."""

    execution_id: str
    workflow_id: str
    status: str
    error: ErrorInfo | None = None
    waiting: list[Waiting] = []


class Problem(Model, frozen=True, kw_only=True):
    """One thing that is wrong with a document."""

    path: str
    code: str
    message: str
    hint: str = ""
    severity: Literal["error", "warning"] = "error"


class Version(Model, frozen=True, kw_only=True):
    """One version of a workflow."""

    version: int
    hash: str
    deployed_at: str
    aliases: list[str] = []


class VersionPage(Page, frozen=True, kw_only=True):
    """A page of versions."""

    versions: list[Version]


class Deployed(Version, frozen=True, kw_only=True):
    """A version that was stored, or that was there already."""

    workflow_id: str
    change: str
    problems: list[Problem] = []


class Checked(Model, frozen=True, kw_only=True):
    """What was found in a document."""

    valid: bool
    workflow_id: str | None = None
    hash: str | None = None
    problems: list[Problem] = []


class Workflow(Model, frozen=True, kw_only=True):
    """A stored workflow in a list."""

    workflow_id: str
    name: str
    latest: int
    versions: int
    aliases: dict[str, int]
    deployed_at: str
    hidden: bool = False


class WorkflowPage(Page, frozen=True, kw_only=True):
    """A page of workflows."""

    workflows: list[Workflow]


class WorkflowVersion(Version, frozen=True, kw_only=True):
    """One version of a workflow with its definition."""

    workflow_id: str
    name: str
    definition: dict[str, Any]


class Alias(Model, frozen=True, kw_only=True):
    """An alias; the starts that no weight takes go to `version`."""

    alias: str
    version: int
    weights: dict[int, float] = {}
    revision: int = 0


class AliasList(Model, frozen=True, kw_only=True):
    """The aliases of a workflow."""

    aliases: list[Alias]


class DeadLetter(Model, frozen=True, kw_only=True):
    """An execution that the engine gave up on."""

    id: str
    execution_id: str
    workflow_id: str
    code: str
    message: str
    at: str
    node_id: str | None = None


class DeadLetterPage(Page, frozen=True, kw_only=True):
    """A page of dead letters."""

    dead_letters: list[DeadLetter]


class Limits(Model, frozen=True, kw_only=True, omit_defaults=True):
    """What starts are held to; `rate` is a text such as `100/m`."""

    rate: str | None = None
    burst: int | None = None
    running: int | None = None
    waiting: int | None = None


class ApiKey(Model, frozen=True, kw_only=True):
    """A key of the API, without its secret."""

    id: str
    name: str
    role: str
    workflows: list[str]
    created_at: str
    created_by: str
    expires_at: str | None = None
    revoked_at: str | None = None
    used_at: str | None = None
    limits: Limits = Limits()


class NewApiKey(ApiKey, frozen=True, kw_only=True):
    """A key with what it opens by, which is told this once."""

    key: str


class ApiKeyList(Model, frozen=True, kw_only=True):
    """All keys."""

    keys: list[ApiKey]


class LogEntry(Model, frozen=True, kw_only=True):
    """Somebody wanted something to be changed."""

    number: int
    at: str
    actor: str
    action: str
    target: str
    details: dict[str, str] = {}
    outcome: str = ""


class LogPage(Page, frozen=True, kw_only=True):
    """A page of the log."""

    entries: list[LogEntry]


class ServerVersion(Model, frozen=True, kw_only=True):
    """What runs on the other side."""

    name: str
    version: str
    api: str
    python: str = ""


class ProblemDocument(Model, frozen=True, kw_only=True):
    """Why something was refused."""

    status: int
    code: str
    detail: str
    title: str = ""
    type: str = ""
    problems: tuple[Problem, ...] = ()
