"""Routes for the system: processes, queues, timers, node types, health checks, and how many executions ended."""

from __future__ import annotations

import os
import platform
from collections import Counter
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Query
from pydantic import AwareDatetime, Field

import rune
from rune.api.system import (
    Catalogue,
    DoctorReport,
    FindingView,
    NodeTypeView,
    QueueList,
    QueueView,
    SettingList,
    SettingView,
    Stats,
    StatsGroup,
    TimerClock,
    TimerList,
    WorkerList,
    WorkerRequest,
    WorkerView,
)
from rune.core.definition.problems import did_you_mean
from rune.core.execution.explain import explain
from rune.documents.json_schema import workflow_schema
from rune.nodes.registry import UnknownNodeTypeError, describe, described
from rune.ports.clock import iso, moment
from rune.ports.inspection import QueueDepth, ReportsDepth
from rune.ports.processes import ProcessInfo
from rune.runtime.maintenance.heartbeat import build_id
from rune.server.context import ServerContext
from rune.server.health import HEALTH
from rune.server.resource import Resource
from rune.server.responses import Accepted, ApiError, Reply
from rune.server.routing import Caller, ExecutionId, Id, NodeType, Omittable, QueryModel, Server, WorkerId
from rune.server.views.statistics import MAX_STEPS

system = Resource("system")


NEVER = 253_402_300_800_000  # epoch ms of the year 10000; a later timer does not wait for time
nodetypes = Resource("node types")


@system.get("/workers", requires="view")
async def list_workers(server: Server) -> Reply[WorkerList]:
    """List processes.

    All recently active processes; on the embedded backend the one process that does everything."""
    fleet = server.engine.backend.processes
    members = [_this_process(server)] if fleet is None else await fleet.list()
    return Reply(WorkerList(workers=[_worker(each) for each in members]))


def _this_process(server: ServerContext) -> ProcessInfo:
    return ProcessInfo(
        name=str(os.getpid()),
        host=platform.node(),
        pid=os.getpid(),
        roles=("api", "scheduler", "worker"),
        version=rune.__version__,
        build=build_id(),
        started_at=server.started_at,
        seen_at=server.clock.now(),
        queues=("default",),
        types=tuple(sorted(server.engine.registry.catalogue)),
        slots=server.slots,
        busy=server.engine.busy,
        draining=server.engine.draining or not server.probe.ready,
    )


def _worker(member: ProcessInfo) -> WorkerView:
    return WorkerView(
        id=member.name,
        host=member.host,
        pid=member.pid,
        roles=list(member.roles),
        version=member.version,
        build=member.build,
        started_at=moment(member.started_at),
        seen_at=moment(member.seen_at),
        queues=member.queues,
        types=member.types,
        busy=member.busy,
        slots=member.slots if "worker" in member.roles else 0,
        ready=not member.draining,
        state="ready" if not member.draining else "draining" if member.busy else "drained",
    )


@system.post("/workers/{worker}/drain", requires="admin", responses={409: "The process runs no nodes."})
async def drain_worker(worker: WorkerId, server: Server) -> Accepted[WorkerRequest]:
    """Drain a worker.

    The worker receives no more work, finishes what it holds, and then stays idle until it is resumed or stopped. It
    receives the request with its next heartbeat."""
    await server.services.workers.drain(worker)
    return Accepted(WorkerRequest(id=worker, draining=True))


@system.post("/workers/{worker}/resume", requires="admin", responses={409: "The process runs no nodes."})
async def resume_worker(worker: WorkerId, server: Server) -> Accepted[WorkerRequest]:
    """Let a drained worker receive work again.

    The worker receives the request with its next heartbeat."""
    await server.services.workers.resume(worker)
    return Accepted(WorkerRequest(id=worker, draining=False))


@system.get("/queues", requires="view")
async def list_queues(server: Server) -> Reply[QueueList]:
    """List queues.

    Counts waiting and claimed tokens."""
    queue = server.engine.backend.queue
    found = await queue.depths() if isinstance(queue, ReportsDepth) else []
    return Reply(QueueList(queues=[_queue(each) for each in found]))


def _queue(found: QueueDepth) -> QueueView:
    oldest = None if found.age is None else round(found.age * 1000)
    return QueueView(name=found.queue, depth=found.waiting, held=found.held, oldest_ms=oldest)


@system.get("/timers", requires="view")
async def get_next_timer(server: Server) -> Reply[TimerClock]:
    """Get the due time of the next timer.

    The earliest timer of all executions."""
    due = await server.engine.backend.state.next_due()
    return Reply(TimerClock(next_due_at=iso(due) if due is not None and due < NEVER else None))


@system.get("/executions/{execution}/timers", requires="view")
async def list_execution_timers(execution: ExecutionId, server: Server) -> Reply[TimerList]:
    """List the timers of an execution.

    Ordered by due time."""
    id = execution
    plan, state = await server.reader.state(id, server.clock.now(), server.engine.backend.state.peek)
    timed = [(each.due, each) for each in explain(plan, state) if each.due is not None]
    found = [each for _, each in sorted(timed, key=lambda pair: pair[0])]
    return Reply(TimerList(execution_id=id, timers=found))


@system.get("/settings", requires="admin")
async def list_settings(server: Server) -> Reply[SettingList]:
    """List settings.

    The values in effect in the process that responds, and where each comes from. Secrets are not shown."""
    return Reply(
        SettingList(settings=[SettingView(**msgspec.structs.asdict(each)) for each in server.settings])
    )


@system.get("/doctor", requires="admin")
async def check_server(server: Server) -> Reply[DoctorReport]:
    """Check the configuration of the server and its stores.

    The checks of `rune doctor`, in the process that responds. Nothing is changed. Requests wait for each other."""
    async with server.checking:
        found = await server.checks()
    bad = any(each.verdict == "bad" for each in found)
    checks = [FindingView(**msgspec.structs.asdict(each)) for each in found]
    return Reply(DoctorReport(status="bad" if bad else "ok", checks=checks))


@nodetypes.get("/nodes", requires="view")
async def list_node_types(server: Server) -> Reply[Catalogue]:
    """List node types.

    Each type once, with its aliases."""
    return Reply(Catalogue(nodes=[NodeTypeView(**each) for each in described(server.engine.registry)]))


@nodetypes.get("/nodes/{type}", requires="view")
async def get_node_type(type: NodeType, server: Server) -> Reply[NodeTypeView]:
    """Get a node type.

    By its name or one of its aliases."""
    registry, name = server.engine.registry, type
    if name not in registry.catalogue:
        hint = did_you_mean(name, registry.catalogue)
        raise UnknownNodeTypeError(f"no node type is called `{name}`; {hint}")
    return Reply(NodeTypeView(**describe(registry, registry.catalogue[name])))


@nodetypes.get("/schemas/workflow", requires="view")
async def get_workflow_schema(server: Server) -> Reply[dict[str, Any]]:
    """Get the JSON Schema of workflow documents.

    Draft 7, with the parameters of every node type. For editors and other tools."""
    return Reply(workflow_schema(server.engine.registry.catalogue))


def health() -> APIRouter:
    """Return the router of the health checks, which require no authentication."""
    router = APIRouter()
    for path, endpoint in HEALTH.items():
        router.add_api_route(path, endpoint, methods=["GET"], include_in_schema=False)
    return router


stats = Resource("system")

STEPS = {"1m": 60_000, "5m": 300_000, "15m": 900_000, "1h": 3_600_000, "6h": 21_600_000, "1d": 86_400_000}
DAY_MS = 86_400_000
By = Literal["workflow", "status", "workflow,status", "status,workflow"]


class StatsQuery(QueryModel):
    """The period, the length of its steps, and what is counted separately."""

    by: By = "status"
    since: Annotated[
        AwareDatetime | None,
        Field(description="The beginning of the period; a day ago, or 400 steps if that is less."),
    ] = None
    step: Literal["1m", "5m", "15m", "1h", "6h", "1d"] = "1h"
    workflow: Omittable[Id] = None


@stats.get("/stats", requires="view")
async def get_stats(query: Annotated[StatsQuery, Query()], server: Server, caller: Caller) -> Reply[Stats]:
    """Count ended executions over time.

    By the time at which they ended. `open` counts executions that are running or paused now."""
    now, step = server.clock.now(), STEPS[query.step]
    since = (
        now - min(DAY_MS, MAX_STEPS * step) if query.since is None else round(query.since.timestamp() * 1000)
    )
    if (now - since) // step > MAX_STEPS:
        raise ApiError(f"query: since: more than {MAX_STEPS} steps of {query.step}", code="BAD_QUERY")
    series = await server.statistics.series(since, now + 1, step)
    names = query.by.split(",")

    def key(workflow: str, status: str) -> tuple[str | None, str | None] | None:
        if not caller.sees(workflow) or query.workflow not in (None, workflow):
            return None
        return workflow if "workflow" in names else None, status if "status" in names else None

    groups: dict[tuple[str | None, str | None], list[int]] = {}
    for place, (_, counted) in enumerate(series):
        for (workflow, status), count in counted.items():
            group = key(workflow, status)
            if group is not None:
                groups.setdefault(group, [0] * len(series))[place] += count
    opened: Counter[tuple[str | None, str | None]] = Counter()
    for each in await server.statistics.source.open():
        group = key(each.workflow, each.status)
        if group is not None:
            opened[group] += each.count
            groups.setdefault(group, [0] * len(series))
    return Reply(
        Stats(
            since=moment(since - since % step),
            step_ms=step,
            steps=[moment(begin) for begin, _ in series],
            groups=[
                StatsGroup(
                    workflow=workflow,
                    status=status,
                    counts=counts,
                    total=sum(counts),
                    open=opened[(workflow, status)],
                )
                for (workflow, status), counts in sorted(
                    groups.items(), key=lambda each: (each[0][0] or "", each[0][1] or "")
                )
            ],
        )
    )
