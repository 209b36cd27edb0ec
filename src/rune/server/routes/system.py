"""The machinery: workers, queues and timers.

The catalogue: node types with the schemas of their parameters.

Health on the port of the API.
"""

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
from rune.runtime.queries.history import iso
from rune.server.context import ServerContext
from rune.server.endpoints import RequestContext, Router
from rune.server.monitoring import HEALTH
from rune.server.responses import Reply
from rune.server.schemas import View, moment

system = Router("machinery")


NEVER = 253_402_300_800_000
"""Epoch ms of the year 10000: what is due later waits for something else than time."""


class WorkerView(View, frozen=True, kw_only=True):
    """A process and what it does; only one that is a `worker` runs nodes, and has slots for them."""

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
    """The processes that are known here."""

    workers: list[WorkerView]


class QueueView(View, frozen=True, kw_only=True):
    """A queue: how many tokens wait in it, how many are in somebody's hands, and for how long the oldest has waited;
    null where that is not known."""

    name: str
    depth: int
    held: int | None
    oldest_ms: int | None


class QueueList(View, frozen=True, kw_only=True):
    """All queues."""

    queues: list[QueueView]


class TimerClock(View, frozen=True, kw_only=True):
    """When the next timer of all is due."""

    next_due_at: str | None


class TimerList(View, frozen=True, kw_only=True):
    """What an execution waits for that has its time."""

    execution_id: str
    timers: list[Waiting]


@system("GET", "/workers", "List the processes", need="view", answer=WorkerList)
async def list_workers(call: RequestContext) -> Response:
    """Every process that was seen of late; on the embedded backend this one, which runs nodes itself."""
    fleet = call.master.engine.backend.fleet
    members = [_here(call.master)] if fleet is None else await fleet.list()
    return Reply(WorkerList(workers=[_worker(each) for each in members]))


def _here(master: ServerContext) -> ProcessInfo:
    return ProcessInfo(
        name=str(os.getpid()),
        host=platform.node(),
        pid=os.getpid(),
        roles=("api", "scheduler", "worker"),
        version=rune.__version__,
        started_at=master.started_at,
        seen_at=master.clock.now(),
        queues=("default",),
        types=tuple(sorted(master.engine.registry.catalogue)),
        slots=master.slots,
        busy=master.engine.busy,
        draining=not master.probe.ready,
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


@system("GET", "/queues", "List queues", need="view", answer=QueueList)
async def list_queues(call: RequestContext) -> Response:
    """Tokens that nobody has taken yet, and those that somebody has."""
    queue = call.master.engine.backend.queue
    found = await queue.depths() if isinstance(queue, ReportsDepth) else []
    return Reply(QueueList(queues=[_queue(each) for each in found]))


def _queue(found: QueueDepth) -> QueueView:
    oldest = None if found.age is None else round(found.age * 1000)
    return QueueView(name=found.queue, depth=found.waiting, held=found.held, oldest_ms=oldest)


@system("GET", "/timers", "When the next timer is due", need="view", answer=TimerClock)
async def next_timer(call: RequestContext) -> Response:
    """Of all executions."""
    due = await call.master.engine.backend.state.next_due()
    return Reply(TimerClock(next_due_at=iso(due) if due is not None and due < NEVER else None))


@system("GET", "/executions/{execution}/timers", "The timers of an execution", need="view", answer=TimerList)
async def list_timers(call: RequestContext) -> Response:
    """What waits for its time, the nearest first."""
    id = call.path["execution"]
    plan, state = await call.master.reader.state(id, call.master.clock.now())
    timed = [(each.due, each) for each in explain(plan, state) if each.due is not None]
    found = [each for _, each in sorted(timed, key=lambda pair: pair[0])]
    return Reply(TimerList(execution_id=id, timers=found))


nodetypes = Router("node types")


class NodeTypeView(View, frozen=True, kw_only=True):
    """One node type. `parameters` is a JSON Schema."""

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


@nodetypes("GET", "/nodes", "List node types", need="view", answer=Catalogue)
async def list_types(call: RequestContext) -> Response:
    """Each once, however many names it has."""
    return Reply(Catalogue(nodes=[NodeTypeView(**each) for each in described(call.master.engine.registry)]))


@nodetypes("GET", "/nodes/{type}", "One node type", need="view", answer=NodeTypeView)
async def get_type(call: RequestContext) -> Response:
    """By its name, or one of its other names."""
    registry, name = call.master.engine.registry, call.path["type"]
    if name not in registry.catalogue:
        hint = did_you_mean(name, registry.catalogue)
        raise UnknownNodeTypeError(f"no node type is called `{name}`; {hint}")
    return Reply(NodeTypeView(**describe(registry, registry.catalogue[name])))


def health() -> APIRouter:
    """The router without a gate: the three routes that everybody may ask for."""
    router = APIRouter()
    for path, endpoint in HEALTH.items():
        router.add_api_route(path, endpoint, methods=["GET"], include_in_schema=False)
    return router
