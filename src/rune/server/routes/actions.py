"""Acting on executions: what people ask the desk for."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from rune.core.limits import LIMITS
from rune.ports.journal import ExecutionEndedError
from rune.server.endpoints import RequestContext, Router
from rune.server.responses import Reply
from rune.server.routes.executions import Id, accepted_reply, key_of
from rune.server.schemas import Started, View

actions = Router("executions")

Item = Annotated[str, Meta(max_length=400, description="An item: `users:5`, or `users:5/orders:2`.")]
_AGAIN = {
    409: "It has not ended, or has nothing to run.",
    429: "A limit refuses it; `Retry-After` says for how many seconds.",
}


def _null() -> msgspec.Raw:
    return msgspec.Raw(b"null")


class CancelBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why it is cancelled."""

    reason: Annotated[str, Meta(max_length=2_000)] = ""


class RetryBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to run again."""

    failed_items: bool = False


class RerunBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From where to run again."""

    node: Id
    item: Item | None = None


class SignalBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to tell an execution."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    value: msgspec.Raw = msgspec.field(default_factory=_null)
    item: Item | None = None


class Acted(View, frozen=True, kw_only=True):
    """What was done. `changed` is false where it was so already."""

    execution_id: str
    status: str
    changed: bool


class Heard(View, frozen=True, kw_only=True):
    """A signal that was taken down, and whether somebody was waiting for it."""

    id: str
    resumed: bool


@actions(
    "POST",
    "/executions/{execution}/cancel",
    "End an execution as cancelled",
    need="run",
    body=CancelBody,
    optional=True,
    answer=Acted,
    also={409: "It has ended."},
    example={"reason": "ordered twice"},
)
async def cancel(call: RequestContext) -> Response:
    """Answers how it ended, should something else have been first. Asked again, it is cancelled already."""
    id = call.path["execution"]
    try:
        status = await call.master.services.executions.cancel(id, call.body.reason)
    except ExecutionEndedError as ended:
        if ended.end.status != "cancelled":
            raise
        return Reply(Acted(execution_id=id, status="cancelled", changed=False))
    return Reply(Acted(execution_id=id, status=status, changed=status == "cancelled"))


@actions(
    "POST",
    "/executions/{execution}/pause",
    "Let nothing more of an execution begin",
    need="run",
    answer=Acted,
    also={409: "It has ended."},
)
async def pause(call: RequestContext) -> Response:
    """What runs goes on to its end."""
    id = call.path["execution"]
    return Reply(
        Acted(execution_id=id, status="paused", changed=await call.master.services.executions.pause(id))
    )


@actions(
    "POST",
    "/executions/{execution}/resume",
    "Let a paused execution go on",
    need="run",
    answer=Acted,
    also={409: "It has ended."},
)
async def resume(call: RequestContext) -> Response:
    """Go on where it was paused."""
    id = call.path["execution"]
    return Reply(
        Acted(execution_id=id, status="running", changed=await call.master.services.executions.resume(id))
    )


@actions(
    "POST",
    "/executions/{execution}/retry",
    "Run again what failed, in a new execution",
    need="run",
    body=RetryBody,
    optional=True,
    answer=Started,
    status=202,
    also=_AGAIN,
    headers=("Idempotency-Key",),
    example={"failed_items": True},
)
async def retry(call: RequestContext) -> Response:
    """What succeeded is kept. With `failed_items` only the items of splits that failed run again."""
    accepted = await call.master.services.executions.retry(
        call.path["execution"], failed_items=call.body.failed_items, key=key_of(call)
    )
    return accepted_reply(accepted)


@actions(
    "POST",
    "/executions/{execution}/rerun",
    "Run a node and everything behind it again, in a new execution",
    need="run",
    body=RerunBody,
    answer=Started,
    status=202,
    also=_AGAIN,
    headers=("Idempotency-Key",),
    example={"node": "price", "item": "users:5"},
)
async def rerun(call: RequestContext) -> Response:
    """In one item, or in all."""
    accepted = await call.master.services.executions.rerun(
        call.path["execution"], call.body.node, item=call.body.item, key=key_of(call)
    )
    return accepted_reply(accepted)


@actions(
    "POST",
    "/executions/{execution}/signals",
    "Tell an execution something",
    need="run",
    body=SignalBody,
    limit=LIMITS.body_bytes,
    answer=Heard,
    also={409: "It has ended, or several items wait and none was named."},
    headers=("Idempotency-Key",),
    example={"name": "approved", "value": {"by": "ada"}},
)
async def signal(call: RequestContext) -> Response:
    """It is kept until somebody waits for it; under a key it is told once."""
    body: SignalBody = call.body
    heard = await call.master.services.executions.signal(
        call.path["execution"], body.name, bytes(body.value), key=key_of(call), item=body.item
    )
    return Reply(Heard(id=heard.id, resumed=heard.resumed))
