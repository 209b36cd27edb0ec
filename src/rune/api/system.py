"""Processes, queues, timers, settings, node types and figures of a server."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from rune.api.base import Known, View, absent
from rune.core.execution.reasons import Waiting


class WorkerView(View, frozen=True, kw_only=True):
    """A process and its roles. Only a `worker` runs nodes and has slots. A process that is not `ready` receives no more
    work: it is `draining` while it still runs nodes, then `drained`."""

    id: str
    host: str
    pid: int
    roles: list[str]
    version: str
    build: str = absent("")
    started_at: str
    seen_at: str
    queues: tuple[str, ...] = absent(())
    types: tuple[str, ...] = absent(())
    busy: int = absent(0)
    slots: int = absent(0)
    ready: bool = absent(True)
    state: Annotated[str, Known(Literal["ready", "draining", "drained"])] = absent("ready")


class WorkerRequest(View, frozen=True, kw_only=True):
    """What a worker was asked to do. `GET /workers` tells whether it has done so."""

    id: str
    draining: bool


class WorkerList(View, frozen=True, kw_only=True):
    """The known processes."""

    workers: list[WorkerView]


class QueueView(View, frozen=True, kw_only=True):
    """A queue: `depth` counts waiting tokens, `held` claimed ones, `oldest_ms` is the age of the oldest waiting token;
    null if unknown."""

    name: str
    depth: int
    held: int | None = absent(None)
    oldest_ms: int | None = absent(None)


class QueueList(View, frozen=True, kw_only=True):
    """All queues."""

    queues: list[QueueView]


class TimerClock(View, frozen=True, kw_only=True):
    """The due time of the next timer."""

    next_due_at: str | None = absent(None)


class TimerList(View, frozen=True, kw_only=True):
    """The timers of an execution."""

    execution_id: str
    timers: list[Waiting]


class SettingView(View, frozen=True, kw_only=True):
    """A setting in effect. A secret has `true` as value if it is set."""

    name: str
    value: Any
    source: Annotated[str, Known(Literal["default", "file", "environment"])]
    secret: bool = absent(False)


class SettingList(View, frozen=True, kw_only=True):
    """The settings of the server that responds."""

    settings: list[SettingView]


class FindingView(View, frozen=True, kw_only=True):
    """The result of one check, with advice unless it is `ok`."""

    check: str
    verdict: Annotated[str, Known(Literal["ok", "warn", "bad"])]
    found: str
    advice: str = absent("")


class DoctorReport(View, frozen=True, kw_only=True):
    """What the checks found; `bad` if one of them failed."""

    status: Annotated[str, Known(Literal["ok", "bad"])]
    checks: list[FindingView]


class NodeTypeView(View, frozen=True, kw_only=True):
    """A node type. `parameters` is a JSON Schema, and so is `output_schema`, which is null if the output depends on the
    parameters or the input. `widgets` names controls by parameter, `icon` an icon of the Lucide set. A node with
    `credentials` and without `credential_types` takes any."""

    type: str
    aliases: list[str]
    summary: str
    doc: str
    output: str
    output_schema: dict[str, Any] | None
    category: str
    icon: str
    widgets: dict[str, str]
    credential_types: list[str]
    errors: dict[str, str]
    error_classes: dict[str, Annotated[str, Known(Literal["permanent", "transient", "by status"])]]
    outlets: list[str]
    trigger: bool
    effectful: bool
    fans_out: bool
    gathers_items: bool
    waits: bool
    runnable: bool
    parameters: dict[str, Any]


class Catalogue(View, frozen=True, kw_only=True):
    """All node types."""

    nodes: list[NodeTypeView]


class StatsGroup(View, frozen=True, kw_only=True):
    """The executions of a workflow, with a status, or both: how many ended in each step, and how many have not ended.
    What is not counted separately is null."""

    workflow: str | None = absent(None)
    status: str | None = absent(None)
    counts: list[int]
    total: int
    open: int


class Stats(View, frozen=True, kw_only=True):
    """The executions that ended since a time, in steps."""

    since: str
    step_ms: int
    steps: list[str]
    groups: list[StatsGroup]


class ServerVersion(View, frozen=True, kw_only=True):
    """The version of a server. `build` is that of its web interface: a page that was loaded from another build asks to
    be reloaded."""

    name: str
    version: str
    api: str
    python: str = absent("")
    build: str = absent("")
