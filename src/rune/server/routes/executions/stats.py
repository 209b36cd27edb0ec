"""Routes for figures: how many executions ended over time, by workflow and status."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from fastapi import Query
from pydantic import AwareDatetime, Field
from starlette.responses import Response

from rune.server.access.auth import requires
from rune.server.responses import ApiError, Reply
from rune.server.routing import Caller, Id, Omittable, QueryModel, Server, resource
from rune.server.schemas import View, moment
from rune.server.views.statistics import MAX_STEPS

stats = resource("system")

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


class StatsGroup(View, frozen=True, kw_only=True):
    """The executions of a workflow, with a status, or both: how many ended in each step, and how many have not ended.
    What is not counted separately is null."""

    workflow: str | None
    status: str | None
    counts: list[int]
    total: int
    open: int


class Stats(View, frozen=True, kw_only=True):
    """The executions that ended since a time, in steps."""

    since: str
    step_ms: int
    steps: list[str]
    groups: list[StatsGroup]


@stats.get(
    "/stats",
    summary="Count ended executions over time",
    dependencies=[requires("view")],
    response_model=Stats,
)
async def get_stats(query: Annotated[StatsQuery, Query()], server: Server, caller: Caller) -> Response:
    """By the time at which they ended. `open` counts executions that are running or paused now."""
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
