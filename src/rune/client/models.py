"""Response types of the API. Unknown fields are ignored, so that a newer server may add some."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

ENDED = frozenset({"completed", "failed", "halted", "cancelled"})


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all response types."""


class Page(Model, frozen=True, kw_only=True):
    """One page of a list. `next` is the cursor of the following page, None on the last one."""

    next: str | None = None


class Item(Model, frozen=True, kw_only=True):
    """An item of a split."""

    split_node_id: str
    item_index: int


class ErrorInfo(Model, frozen=True, kw_only=True):
    """An error. That of an execution names the node run it comes from, if it comes from one."""

    code: str
    message: str
    details: Any = None
    node_id: str | None = None
    node_type: str | None = None
    lineage: tuple[Item, ...] | None = None
    attempt: int | None = None


class Execution(Model, frozen=True, kw_only=True):
    execution_id: str
    workflow_id: str
    status: str
    hash: str
    started_at: str
    completed_at: str | None = None
    total_duration_ms: int | None = None
    failed_items: int | None = None
    version: int | None = None
    alias: str | None = None
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
        return self.status in ENDED


class Count(Model, frozen=True, kw_only=True):
    """A number of executions; an estimate unless `exact`."""

    value: int
    exact: bool


class ExecutionPage(Page, frozen=True, kw_only=True):
    executions: list[Execution]
    count: Count | None = None


class Started(Model, frozen=True, kw_only=True):
    """An accepted execution. `replayed`: an earlier request with the same idempotency key started it. `execution`: its
    state, if the start waited for its end."""

    execution_id: str
    workflow_id: str
    hash: str
    version: int | None = None
    alias: str | None = None
    started_at: str
    retry_of: str | None = None
    replayed: bool = False
    execution: Execution | None = None


class ActionResult(Model, frozen=True, kw_only=True):
    """The result of an action; `changed` is false if the execution was already in that state."""

    execution_id: str
    status: str
    changed: bool


class SignalResult(Model, frozen=True, kw_only=True):
    """A stored signal; `resumed` is true if a node was waiting for it."""

    id: str
    resumed: bool


class Frame(Model, frozen=True, kw_only=True):
    """One level of a lineage: an item of a split."""

    split_node_id: str
    branch_id: str
    item_index: int
    total_items: int | None


class NodeRun(Model, frozen=True, kw_only=True):
    """A node run in one lineage. `output` is None where it is too large for a list; `output_bytes` is its size.
    `pinned`: the output was given, and the node was not called."""

    node_id: str
    status: str
    lineage: tuple[Frame, ...] = ()
    attempts: int = 0
    output: Any = None
    output_bytes: int = 0
    error: ErrorInfo | None = None
    started_at: str | None = None
    duration_ms: int = 0
    pinned: bool = False


class NodeRunPage(Page, frozen=True, kw_only=True):
    nodes: list[NodeRun]


class Attempt(Model, frozen=True, kw_only=True):
    """One attempt of a node run. `ended_at` is None while it runs or waits."""

    attempt: int
    status: str
    started_at: str
    ended_at: str | None = None
    duration_ms: int | None = None
    error: ErrorInfo | None = None
    worker: str = ""
    idempotency_key: str = ""
    logged: bool = False


class AttemptList(Model, frozen=True, kw_only=True):
    """The attempts of a node run, oldest first."""

    node_id: str
    attempts: list[Attempt]
    lineage: tuple[Frame, ...] = ()


class LogLine(Model, frozen=True, kw_only=True):
    """A line of a log."""

    at: str
    level: str
    message: str


class NodeLog(Model, frozen=True, kw_only=True):
    """The newest lines of an attempt, oldest first. `dropped` older ones are not kept. `position` orders the logs of an
    execution."""

    node_id: str
    attempt: int
    lines: list[LogLine]
    lineage: tuple[Frame, ...] = ()
    dropped: int = 0
    position: int = 0


class NodeLogPage(Model, frozen=True, kw_only=True):
    logs: list[NodeLog]
    next: int | None = None


class NodeInput(Model, frozen=True, kw_only=True):
    """What a node was called with. `parameters` is None if they cannot be resolved."""

    node_id: str
    attempt: int
    payload: Any = None
    parameters: dict[str, Any] | None = None
    error: ErrorInfo | None = None
    lineage: tuple[Frame, ...] = ()


class Event(Model, frozen=True, kw_only=True):
    """An event, numbered without gaps within its execution."""

    number: int
    at: str
    kind: str
    node_id: str | None = None
    lineage: tuple[Frame, ...] = ()
    details: dict[str, Any] = {}

    @property
    def ends(self) -> bool:
        return self.kind.startswith("execution.") and self.kind.removeprefix("execution.") in ENDED


class EventPage(Model, frozen=True, kw_only=True):
    """Events of an execution. `next` is the number to continue after, None after the newest event."""

    events: list[Event]
    next: int | None = None


class NodeState(Model, frozen=True, kw_only=True):
    """A node in a graph. Inside a split `counts` has the number of items by state."""

    state: str
    attempts: int = 0
    started_at: str | None = None
    duration_ms: int | None = None
    due: str | None = None
    code: str = ""
    worker: str = ""
    progress: str = ""
    counts: dict[str, int] | None = None


class SplitState(Model, frozen=True, kw_only=True):
    """The items of a split by their worst state."""

    items: int
    done: int
    counts: dict[str, int]


class Graph(Model, frozen=True, kw_only=True):
    """The states of all nodes and edges after the event `number`."""

    number: int
    status: str
    nodes: dict[str, NodeState]
    edges: dict[str, str]
    splits: dict[str, SplitState] = {}


class BulkJob(Model, frozen=True, kw_only=True):
    """One action on many executions, with the number of executions by outcome."""

    id: str
    action: str
    status: str
    created_at: str
    principal: str
    total: int
    done: int
    unchanged: int
    refused: int
    pending: int


class BulkJobList(Model, frozen=True, kw_only=True):
    """Bulk jobs."""

    jobs: list[BulkJob]


class BulkOutcome(Model, frozen=True, kw_only=True):
    """What became of one execution of a bulk job: `done`, `unchanged` or `refused`."""

    execution_id: str
    outcome: str
    started: str | None = None
    code: str = ""
    detail: str = ""


class BulkOutcomePage(Page, frozen=True, kw_only=True):
    """A page of outcomes."""

    outcomes: list[BulkOutcome]


class BulkPreview(Model, frozen=True, kw_only=True):
    """How many executions a bulk job would process, and how many of them can be changed so."""

    total: int
    eligible: int
    by_status: dict[str, int]
    more: bool


class ComparedRun(Model, frozen=True, kw_only=True):
    """One side of a run that differs between two executions."""

    status: str
    attempts: int
    error: ErrorInfo | None = None
    items: int | None = None
    output_bytes: int | None = None


class ComparedRunPair(Model, frozen=True, kw_only=True):
    """A run that differs in some fields; None on the side without a result."""

    node_id: str
    lineage: str
    fields: list[str]
    before: ComparedRun | None = None
    after: ComparedRun | None = None


class ComparedRunPage(Page, frozen=True, kw_only=True):
    """A page of runs that differ."""

    runs: list[ComparedRunPair]


class DifferenceGroup(Model, frozen=True, kw_only=True):
    """Runs of a node that differ in the same way."""

    node_id: str
    fields: list[str]
    status: tuple[str | None, str | None]
    code: tuple[str, str]
    count: int
    lineages: list[str]


class DifferingRun(Model, frozen=True, kw_only=True):
    """A node run that differs in some fields, with status, attempts, output and error of both sides; None on the side
    where the node has not ended."""

    node_id: str
    lineage: str
    fields: list[str]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class Difference(Model, frozen=True, kw_only=True):
    """All differences between two executions."""

    before: str
    after: str
    status: tuple[str, str]
    same_input: bool
    definition: list[dict[str, Any]]
    nodes: list[DifferingRun]


class Comparison(Model, frozen=True, kw_only=True):
    """The differences between two executions by kind. `first` is the first node that differs."""

    before: str
    after: str
    status: tuple[str, str]
    same_input: bool
    same_definition: bool
    definition: list[dict[str, Any]]
    compared: int
    differing: int
    first: str | None
    groups: list[DifferenceGroup]


class ValueEntry(Model, frozen=True, kw_only=True):
    """A member of an object or array. `size` is the number of its members or characters."""

    key: str | int
    type: str
    bytes: int
    size: int | None
    value: Any = None
    next: int | None = None
    entries: list[Any] | None = None


class ValuePart(Model, frozen=True, kw_only=True):
    """A part of a value. `next` is the offset of the following members or characters."""

    pointer: str
    type: str
    bytes: int
    size: int | None
    offset: int
    next: int | None
    value: Any = None
    entries: list[ValueEntry] | None = None


class ValueMatch(Model, frozen=True, kw_only=True):
    """A key, or a text, number or word, that contains the text. `text` is the part of it around the match, which begins
    at `start` in it."""

    pointer: str
    where: str
    text: str
    start: int


class ValueMatches(Model, frozen=True, kw_only=True):
    """Matches in a value, from `offset` on. `count` is the number of all; not `complete` if the search ended early."""

    find: str
    offset: int
    count: int
    complete: bool
    matches: list[ValueMatch]


class SplitItem(Model, frozen=True, kw_only=True):
    """An item of a split and the states of the nodes in it."""

    item: str
    index: int
    state: str
    code: str = ""
    attempts: int = 0
    started_at: str | None = None
    duration_ms: int | None = None
    nodes: dict[str, str] = {}


class SplitItemPage(Page, frozen=True, kw_only=True):
    items: list[SplitItem]


class CodeCount(Model, frozen=True, kw_only=True):
    """How many items have an error code; `byte` is its value in packed form."""

    code: str
    byte: int
    count: int


class ItemTimes(Model, frozen=True, kw_only=True):
    """When the items that have begun ran. `density` is how many were under way in each of 60 steps of equal length from
    `began_at` to `ended_at`."""

    items: int
    began_at: str
    ended_at: str
    min_ms: int
    median_ms: int
    p95_ms: int
    max_ms: int
    density: list[int]


class ItemCounts(Model, frozen=True, kw_only=True):
    """The items of a split, counted. A packed state is a position in `legend`. `times` is null unless asked for."""

    number: int
    items: int
    states: dict[str, int]
    codes: list[CodeCount]
    legend: list[str]
    times: ItemTimes | None = None


class RunningNode(Model, frozen=True, kw_only=True):
    """A node that runs now. `since` is when the attempt began, `progress` what the node last reported."""

    node_id: str
    lineage: tuple[Frame, ...] = ()
    attempt: int = 1
    since: str = ""
    worker: str = ""
    progress: str | None = None


class LoggedLine(Model, frozen=True, kw_only=True):
    """A line that a node run logged."""

    node_id: str
    lineage: tuple[Frame, ...] = ()
    attempt: int = 1
    at: str = ""
    level: str = "info"
    message: str = ""


class Now(Model, frozen=True, kw_only=True):
    """All nodes of an execution that run at the moment, and the lines logged since the previous one. Not numbered, and
    not repeated if it is lost."""

    at: str
    running: list[RunningNode] = []
    lines: list[LoggedLine] = []


class FailedRun(Model, frozen=True, kw_only=True):
    """A node that failed in one item."""

    node_id: str
    lineage: str
    code: str
    message: str


class SplitRollup(Model, frozen=True, kw_only=True):
    """The items of a split over all lineages: node counts by status, nodes per second, the first failures."""

    split_node_id: str
    items: int
    nodes: dict[str, dict[str, int]]
    ended: int
    rate: float
    failures: list[FailedRun]


class SplitRollupList(Model, frozen=True, kw_only=True):
    splits: list[SplitRollup]


class Rollup(Model, frozen=True, kw_only=True):
    """The splits of an execution after the event `number`, in place of the events inside of them."""

    number: int
    splits: list[SplitRollup]


class Missed(Model, frozen=True, kw_only=True):
    """Changes of executions may be missing: the list of executions has to be read again."""


class Waiting(Model, frozen=True, kw_only=True):
    """A node that has not ended yet, and what it waits for."""

    node: str
    lineage: str
    reason: str
    arrived: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    due: int | None = None
    done: int | None = None
    total: int | None = None
    worker: str | None = None
    since: int | None = None
    attempt: int | None = None
    progress: str | None = None


class WaitingSignal(Model, frozen=True, kw_only=True):
    """A node that waits for a signal, and what the signal should contain."""

    execution_id: str
    workflow_id: str
    node_id: str
    signal: str
    since: str
    item: str | None = None
    until: str | None = None
    labels: dict[str, str] = {}
    title: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    choices: list[str] | None = None


class WaitingSignalPage(Page, frozen=True, kw_only=True):
    waiting: list[WaitingSignal]


class Explanation(Model, frozen=True, kw_only=True):
    """What an execution is waiting for. `expected_by`: when an open execution is late, or since when (epoch ms)."""

    execution_id: str
    workflow_id: str
    status: str
    error: ErrorInfo | None = None
    waiting: list[Waiting] = []
    expected_by: int | None = None


class Problem(Model, frozen=True, kw_only=True):
    """A problem found in a document."""

    path: str
    code: str
    message: str
    hint: str = ""
    severity: Literal["error", "warning"] = "error"
    line: int | None = None
    column: int | None = None


class Version(Model, frozen=True, kw_only=True):
    version: int
    hash: str
    deployed_at: str
    aliases: list[str] = []
    principal: str | None = None
    note: str = ""


class VersionPage(Page, frozen=True, kw_only=True):
    versions: list[Version]


class Deployed(Version, frozen=True, kw_only=True):
    """The result of a deployment: a new version, or an existing one with the same content."""

    workflow_id: str
    change: str
    problems: list[Problem] = []


class Workflow(Model, frozen=True, kw_only=True):
    workflow_id: str
    name: str
    latest: int
    versions: int
    aliases: dict[str, int]
    deployed_at: str
    hidden: bool = False
    activity: WorkflowActivity | None = None


class WorkflowPage(Page, frozen=True, kw_only=True):
    workflows: list[Workflow]


class WorkflowVersion(Version, frozen=True, kw_only=True):
    """A version of a workflow with its definition."""

    workflow_id: str
    name: str
    definition: dict[str, Any]


class Preview(Model, frozen=True, kw_only=True):
    """The value of an expression as JSON text, which may be cut."""

    text: str | None = None
    type: str | None = None
    truncated: bool = False
    bytes: int = 0
    problems: list[Problem] = []


class NodePlace(Model, frozen=True, kw_only=True):
    """The place of a node by its top left corner, and the points of its outlets."""

    x: float
    y: float
    width: float
    height: float
    outlets: dict[str, list[float]] = {}


class EdgePlace(Model, frozen=True, kw_only=True):
    """The points that an edge passes."""

    points: list[list[float]]
    outlet: str | None = None
    is_error: bool = False


class FramePlace(Model, frozen=True, kw_only=True):
    """The frame around the body of a split."""

    x: float
    y: float
    width: float
    height: float


class Layout(Model, frozen=True, kw_only=True):
    """The layout of a definition: nodes and edges by id, frames by the id of their split."""

    direction: Literal["right", "down"]
    width: float
    height: float
    nodes: dict[str, NodePlace]
    edges: dict[str, EdgePlace]
    frames: dict[str, FramePlace]


class PlannedNode(Model, frozen=True, kw_only=True):
    """A node of a checked document."""

    outlets: list[str] = []
    split: str | None = None
    mentions: list[str] = []


class Checked(Model, frozen=True, kw_only=True):
    """The result of a validation."""

    valid: bool
    workflow_id: str | None = None
    hash: str | None = None
    problems: list[Problem] = []
    plan: dict[str, PlannedNode] | None = None
    layout: Layout | None = None


class ImportEntry(Model, frozen=True, kw_only=True):
    """What became of one element of an imported document: `carried`, `changed`, `approximated` or `by_hand`."""

    source: str
    status: str
    target: str = ""
    message: str = ""
    hint: str = ""
    node: str = ""


class Imported(Model, frozen=True, kw_only=True):
    """The workflow made of a document of another tool, and the report. `complete`: everything was carried. `test` is a
    test for `rune test` whose mocks are the pinned data of the source, without its workflow."""

    document: dict[str, Any]
    format: str
    complete: bool
    counts: dict[str, int] = {}
    entries: list[ImportEntry] = []
    problems: list[Problem] = []
    stubs: str = ""
    test: dict[str, Any] = {}


class Outcome(Model, frozen=True, kw_only=True):
    """One of the newest executions of a workflow."""

    execution_id: str
    status: str
    started_at: str
    total_duration_ms: int | None = None


class WorkflowActivity(Model, frozen=True, kw_only=True):
    """The newest executions of a workflow, and quantiles of the durations of those that ended last."""

    outcomes: list[Outcome]
    measured: int = 0
    p50_ms: int | None = None
    p95_ms: int | None = None


class StatsGroup(Model, frozen=True, kw_only=True):
    """How many executions ended in each step, and how many have not ended."""

    workflow: str | None = None
    status: str | None = None
    counts: list[int]
    total: int
    open: int


class Stats(Model, frozen=True, kw_only=True):
    """The executions that ended since a time, in steps."""

    since: str
    step_ms: int
    steps: list[str]
    groups: list[StatsGroup]


class Alias(Model, frozen=True, kw_only=True):
    """An alias. Starts go to `version`, except for the percentages in `weights`."""

    alias: str
    version: int
    weights: dict[int, float] = {}
    revision: int = 0


class AliasList(Model, frozen=True, kw_only=True):
    aliases: list[Alias]


class VersionChange(Model, frozen=True, kw_only=True):
    """A node, an edge, the settings or the document that was added, removed or changed between two versions."""

    what: str
    id: str
    kind: str
    before: Any
    after: Any


class ComparedVersions(Model, frozen=True, kw_only=True):
    """The differences between two versions of a workflow."""

    workflow_id: str
    before: int
    after: int
    changes: list[VersionChange]


class Queue(Model, frozen=True, kw_only=True):
    """A queue: waiting and claimed tokens, and the age of the oldest waiting one."""

    name: str
    depth: int
    held: int | None = None
    oldest_ms: int | None = None


class QueueList(Model, frozen=True, kw_only=True):
    queues: list[Queue]


class TimerList(Model, frozen=True, kw_only=True):
    """The timers of an execution by due time."""

    execution_id: str
    timers: list[Waiting]


class NextTimer(Model, frozen=True, kw_only=True):
    """The due time of the next timer of all executions."""

    next_due_at: str | None = None


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
    dead_letters: list[DeadLetter]


class DeadMessage(Model, frozen=True, kw_only=True):
    """A message of the queue that no worker could process; what its body does not name is None."""

    id: str
    code: str
    message: str
    queue: str
    execution_id: str | None = None
    workflow_id: str | None = None
    node_id: str | None = None
    at: str | None = None


class DeadMessageDetail(DeadMessage, frozen=True, kw_only=True):
    """A dead message with its body."""

    body: str


class DeadMessageList(Model, frozen=True, kw_only=True):
    dead_messages: list[DeadMessage]


class RequeuedMessage(Model, frozen=True, kw_only=True):
    """A dead message that was sent to its queue again; `count` is the number of identical ones."""

    id: str
    queue: str
    count: int


class Webhook(Model, frozen=True, kw_only=True):
    """A webhook. `path` is None for callers that may not start executions."""

    path: str | None = None
    method: str = "POST"
    auth: str = "none"
    secret: str = "none"
    window: int = 300
    respond: str = "accepted"


class Schedule(Model, frozen=True, kw_only=True):
    """A schedule and its state."""

    cron: str | None = None
    timezone: str = "UTC"
    every_ms: int | None = None
    catch_up: str = "none"
    overlap: str = "skip"
    next_at: str | None = None
    waiting: int = 0
    last_execution_id: str | None = None
    trouble: str = ""


class Trigger(Model, frozen=True, kw_only=True):
    """A trigger. `new_secret` is set only in the response that created the secret."""

    id: str
    workflow_id: str
    node_id: str
    kind: str
    version: int
    enabled: bool
    created_at: str
    webhook: Webhook | None = None
    schedule: Schedule | None = None
    new_secret: str | None = None

    def __repr__(self) -> str:
        return f"Trigger({self.id})"


class TriggerList(Model, frozen=True, kw_only=True):
    triggers: list[Trigger]


class Credential(Model, frozen=True, kw_only=True):
    """A credential without its values."""

    id: str
    name: str
    type: str
    version: int
    fields: list[str]
    hosts: list[str]
    created_at: str
    changed_at: str
    key: str = ""
    insecure: bool | None = None


class CredentialList(Model, frozen=True, kw_only=True):
    credentials: list[Credential]


class CredentialUse(Model, frozen=True, kw_only=True):
    """A version of a workflow, and those of its nodes that refer to a credential."""

    workflow_id: str
    version: int
    nodes: list[str]
    name: str = ""
    aliases: list[str] = []


class CredentialUses(Model, frozen=True, kw_only=True):
    uses: list[CredentialUse]


class Granted(Model, frozen=True, kw_only=True):
    """The principals that may use a credential."""

    granted: list[str]


class Limits(Model, frozen=True, kw_only=True, omit_defaults=True):
    """Limits on starts; `rate` is a text such as `100/m`."""

    rate: str | None = None
    burst: int | None = None
    running: int | None = None
    waiting: int | None = None


class LateHandler(Model, frozen=True, kw_only=True):
    """The workflow that is started for late or missing executions."""

    workflow: str
    version: int | str | None = None


class Handler(LateHandler, frozen=True, kw_only=True):
    """The workflow that is started for executions that end with one of these statuses."""

    statuses: tuple[str, ...] = ("failed", "halted")


class Handlers(Model, frozen=True, kw_only=True):
    """The handlers of deployed workflows that name none."""

    on_failure: Handler | None = None
    on_late: LateHandler | None = None
    on_missing: LateHandler | None = None


class FailedHandler(Model, frozen=True, kw_only=True):
    """A handler that could not be started. Without `given_up_at` its start is repeated. For an execution that is
    missing, `workflow` is set instead of its id."""

    execution_id: str | None = None
    workflow: str | None = None
    kind: str
    at: str
    tries: int
    error: str
    given_up_at: str | None = None


class FailedHandlers(Model, frozen=True, kw_only=True):
    handlers: list[FailedHandler]


class ApiKey(Model, frozen=True, kw_only=True):
    """An API key without its secret."""

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
    """A created API key with its secret, which is returned only once."""

    key: str


class Me(Model, frozen=True, kw_only=True):
    """The principal of the client, and how it is authenticated: by nothing, an API key or a session."""

    principal: str
    role: str
    rights: list[str]
    workflows: list[str]
    authentication: str = "key"
    expires_at: str | None = None


class ApiKeyList(Model, frozen=True, kw_only=True):
    keys: list[ApiKey]


class LogEntry(Model, frozen=True, kw_only=True):
    """An entry of the audit log: a requested change and its outcome, or a refused request."""

    number: int
    at: str
    actor: str
    action: str
    target: str
    details: dict[str, str] = {}
    outcome: str = ""
    address: str = ""
    request_id: str = ""


class LogPage(Page, frozen=True, kw_only=True):
    entries: list[LogEntry]


class Worker(Model, frozen=True, kw_only=True):
    """A process of the server: API, scheduler or worker. `state` is `ready`, `draining` or `drained`."""

    id: str
    host: str
    pid: int
    roles: list[str]
    version: str
    build: str = ""
    started_at: str
    seen_at: str
    queues: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    slots: int = 0
    busy: int = 0
    ready: bool = True
    state: str = "ready"


class Finding(Model, frozen=True, kw_only=True):
    """The result of one check of a server: `ok`, `warn` or `bad`."""

    check: str
    verdict: str
    found: str
    advice: str = ""


class DoctorReport(Model, frozen=True, kw_only=True):
    """What the checks of a server found; `status` is `bad` if one of them failed."""

    status: str
    checks: list[Finding]


class WorkerRequest(Model, frozen=True, kw_only=True):
    """What a worker was asked to do."""

    id: str
    draining: bool


class WorkerList(Model, frozen=True, kw_only=True):
    workers: list[Worker]


class CredentialType(Model, frozen=True, kw_only=True):
    """A credential type with the JSON Schema of its fields."""

    type: str
    summary: str = ""
    fields: dict[str, Any]
    secrets: list[str] = []
    node_types: list[str] = []


class CredentialTypeList(Model, frozen=True, kw_only=True):
    credential_types: list[CredentialType]


class Setting(Model, frozen=True, kw_only=True):
    """A setting in effect. `source` is `default`, `file` or `environment`; a secret is `True` if it is set."""

    name: str
    value: Any
    source: str
    secret: bool = False


class SettingList(Model, frozen=True, kw_only=True):
    """Settings."""

    settings: list[Setting]


class SchedulePreview(Model, frozen=True, kw_only=True):
    """The next times of a schedule, or what is wrong with it."""

    ticks: list[str]
    problems: list[Problem] = []


class NodeTypeList(Model, frozen=True, kw_only=True):
    nodes: list[dict[str, Any]]


class ServerVersion(Model, frozen=True, kw_only=True):
    name: str
    version: str
    api: str
    python: str = ""
    build: str = ""


class ProblemDocument(Model, frozen=True, kw_only=True):
    """An error response (RFC 9457)."""

    status: int
    code: str
    detail: str
    title: str = ""
    type: str = ""
    problems: tuple[Problem, ...] = ()
    request_id: str = ""
