"""Routes for the system: processes, queues, timers, node types and health checks."""

from __future__ import annotations

import os
import platform
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

import rune
from rune.core.definition.problems import did_you_mean
from rune.core.execution.explain import Waiting, explain
from rune.nodes.registry import UnknownNodeTypeError, describe, described
from rune.ports.inspection import QueueDepth, ReportsDepth
from rune.ports.processes import ProcessInfo
from rune.runtime.clock import iso
from rune.server.context import ServerContext
from rune.server.endpoints import RequestContext, Router
from rune.server.monitoring import HEALTH
from rune.server.responses import Reply
from rune.server.schemas import View, moment

system = Router("system")


NEVER = 253_402_300_800_000  # epoch ms of the year 10000; a later timer does not wait for time
nodetypes = Router("node types")


class WorkerView(View, frozen=True, kw_only=True):
    """A process and its roles. Only a `worker` runs nodes and has slots."""

    id: str
    host: str
    pid: int
    roles: list[str]
    version: str
    started_at: str
    seen_at: str
    queues: list[str]
    types: list[str]
    busy: int
    slots: int
    ready: bool


class WorkerList(View, frozen=True, kw_only=True):
    """The known processes."""

    workers: list[WorkerView]


class QueueView(View, frozen=True, kw_only=True):
    """A queue: `depth` counts waiting tokens, `held` claimed ones, `oldest_ms` is the age of the oldest waiting token;
    null if unknown."""

    name: str
    depth: int
    held: int | None
    oldest_ms: int | None


class QueueList(View, frozen=True, kw_only=True):
    """All queues."""

    queues: list[QueueView]


class TimerClock(View, frozen=True, kw_only=True):
    """The due time of the next timer."""

    next_due_at: str | None


class TimerList(View, frozen=True, kw_only=True):
    """The timers of an execution."""

    execution_id: str
    timers: list[Waiting]


@system("GET", "/workers", "List processes", permission="view", response=WorkerList)
async def list_workers(call: RequestContext) -> Response:
    """All recently active processes; on the embedded backend the one process that does everything."""
    fleet = call.server.engine.backend.processes
    members = [_this_process(call.server)] if fleet is None else await fleet.list()
    return Reply(WorkerList(workers=[_worker(each) for each in members]))


def _this_process(server: ServerContext) -> ProcessInfo:
    return ProcessInfo(
        name=str(os.getpid()),
        host=platform.node(),
        pid=os.getpid(),
        roles=("api", "scheduler", "worker"),
        version=rune.__version__,
        started_at=server.started_at,
        seen_at=server.clock.now(),
        queues=("default",),
        types=tuple(sorted(server.engine.registry.catalogue)),
        slots=server.slots,
        busy=server.engine.busy,
        draining=not server.probe.ready,
    )


def _worker(member: ProcessInfo) -> WorkerView:
    return WorkerView(
        id=member.name,
        host=member.host,
        pid=member.pid,
        roles=list(member.roles),
        version=member.version,
        started_at=moment(member.started_at),
        seen_at=moment(member.seen_at),
        queues=list(member.queues),
        types=list(member.types),
        busy=member.busy,
        slots=member.slots if "worker" in member.roles else 0,
        ready=not member.draining,
    )


@system("GET", "/queues", "List queues", permission="view", response=QueueList)
async def list_queues(call: RequestContext) -> Response:
    """Counts waiting and claimed tokens."""
    queue = call.server.engine.backend.queue
    found = await queue.depths() if isinstance(queue, ReportsDepth) else []
    return Reply(QueueList(queues=[_queue(each) for each in found]))


def _queue(found: QueueDepth) -> QueueView:
    oldest = None if found.age is None else round(found.age * 1000)
    return QueueView(name=found.queue, depth=found.waiting, held=found.held, oldest_ms=oldest)


@system("GET", "/timers", "Get the due time of the next timer", permission="view", response=TimerClock)
async def next_timer(call: RequestContext) -> Response:
    """The earliest timer of all executions."""
    due = await call.server.engine.backend.state.next_due()
    return Reply(TimerClock(next_due_at=iso(due) if due is not None and due < NEVER else None))


@system(
    "GET",
    "/executions/{execution}/timers",
    "List the timers of an execution",
    permission="view",
    response=TimerList,
)
async def list_timers(call: RequestContext) -> Response:
    """Ordered by due time."""
    id = call.path["execution"]
    plan, state = await call.server.reader.state(id, call.server.clock.now())
    timed = [(each.due, each) for each in explain(plan, state) if each.due is not None]
    found = [each for _, each in sorted(timed, key=lambda pair: pair[0])]
    return Reply(TimerList(execution_id=id, timers=found))


class NodeTypeView(View, frozen=True, kw_only=True):
    """A node type. `parameters` is a JSON Schema."""

    type: str
    aliases: list[str]
    summary: str
    doc: str
    output: str
    errors: dict[str, str]
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


@nodetypes("GET", "/nodes", "List node types", permission="view", response=Catalogue)
async def list_types(call: RequestContext) -> Response:
    """Each type once, with its aliases."""
    return Reply(Catalogue(nodes=[NodeTypeView(**each) for each in described(call.server.engine.registry)]))


@nodetypes("GET", "/nodes/{type}", "Get a node type", permission="view", response=NodeTypeView)
async def get_type(call: RequestContext) -> Response:
    """By its name or one of its aliases."""
    registry, name = call.server.engine.registry, call.path["type"]
    if name not in registry.catalogue:
        hint = did_you_mean(name, registry.catalogue)
        raise UnknownNodeTypeError(f"no node type is called `{name}`; {hint}")
    return Reply(NodeTypeView(**describe(registry, registry.catalogue[name])))


def health() -> APIRouter:
    """Return the router of the health checks, which require no authentication."""
    router = APIRouter()
    for path, endpoint in HEALTH.items():
        router.add_api_route(path, endpoint, methods=["GET"], include_in_schema=False)
    return router
