"""Limits on the starts of a workflow."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rune.master.operation import Call, Resource
from rune.master.reply import Reply
from rune.master.views import View
from rune.ports.library import LATEST, unknown
from rune.ports.limits import MOST, NONE, Limits, of_workflow

limits = Resource("workflows")

Rate = Annotated[
    str, Meta(pattern=r"^[1-9][0-9]{0,5}/[smh]$", description="So many per second, minute or hour: `100/m`.")
]
Count = Annotated[int, Meta(ge=1, le=MOST)]


class KeyLimitsBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the starts of a key are held to. `burst` belongs to a `rate`: how many may come at once."""

    rate: Rate | None = None
    burst: Count | None = None
    running: Count | None = None


class LimitsBody(KeyLimitsBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the starts of a workflow are held to. What is left out is not limited."""

    waiting: Count | None = None


class LimitsView(View, frozen=True, kw_only=True):
    """Limits; null where there is none."""

    rate: str | None
    burst: int | None
    running: int | None
    waiting: int | None


def limits_view(found: Limits) -> LimitsView:
    """Limits as they are shown."""
    return LimitsView(rate=found.rate, burst=found.burst, running=found.running, waiting=found.waiting)


def wanted_limits(body: KeyLimitsBody | None) -> Limits:
    """Limits as somebody wants them."""
    return NONE if body is None else Limits(**msgspec.structs.asdict(body))


async def known_limits(call: Call) -> dict[str, Limits]:
    """All limits there are."""
    return await call.master.engine.backend.limits.all()


@limits("GET", "/workflows/{workflow}/limits", "The limits of a workflow", need="view", answer=LimitsView)
async def get_limits(call: Call) -> Response:
    """What its starts are held to."""
    workflow = call.path["workflow"]
    if not await call.master.engine.backend.library.aliases(workflow):
        raise unknown(workflow, (), LATEST)
    return Reply(limits_view((await known_limits(call)).get(of_workflow(workflow), NONE)))


@limits(
    "PUT",
    "/workflows/{workflow}/limits",
    "Limit the starts of a workflow",
    need="edit",
    body=LimitsBody,
    answer=LimitsView,
    example={"rate": "10/s", "running": 20, "waiting": 1000},
)
async def put_limits(call: Call) -> Response:
    """From the next start on; other processes of a cluster follow within a second. An empty object lifts all."""
    return Reply(
        limits_view(await call.master.desk.limit_workflow(call.path["workflow"], wanted_limits(call.body)))
    )
