"""Routes that act on executions: cancel, pause, resume, retry, rerun, signal."""

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

Item = Annotated[str, Meta(max_length=400, description="An item such as `users:5` or `users:5/orders:2`.")]
_RERUN_RESPONSES = {
    409: "The execution has not ended, or has nothing to run again.",
    429: "A start limit is exceeded; `Retry-After` is in seconds.",
}


def _null() -> msgspec.Raw:
    return msgspec.Raw(b"null")


class CancelBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a cancellation."""

    reason: Annotated[str, Meta(max_length=2_000)] = ""


class RetryBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a retry."""

    failed_items: bool = False


class RerunBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The node, and optionally the item, to run again."""

    node: Id
    item: Item | None = None


class SignalBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signal."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    value: msgspec.Raw = msgspec.field(default_factory=_null)
    item: Item | None = None


class Acted(View, frozen=True, kw_only=True):
    """The result of an action; `changed` is false if the execution was already in that state."""

    execution_id: str
    status: str
    changed: bool


class Heard(View, frozen=True, kw_only=True):
    """A stored signal; `resumed` is true if a node was waiting for it."""

    id: str
    resumed: bool


@actions(
    "POST",
    "/executions/{execution}/cancel",
    "Cancel an execution",
    permission="run",
    body=CancelBody,
    optional=True,
    response=Acted,
    responses={409: "The execution has ended."},
    example={"reason": "ordered twice"},
)
async def cancel(call: RequestContext) -> Response:
    """Returns the final status if the execution ended otherwise first. Cancelling again changes nothing."""
    id = call.path["execution"]
    try:
        status = await call.server.services.executions.cancel(id, call.body.reason)
    except ExecutionEndedError as ended:
        if ended.end.status != "cancelled":
            raise
        return Reply(Acted(execution_id=id, status="cancelled", changed=False))
    return Reply(Acted(execution_id=id, status=status, changed=status == "cancelled"))


@actions(
    "POST",
    "/executions/{execution}/pause",
    "Pause an execution",
    permission="run",
    response=Acted,
    responses={409: "The execution has ended."},
)
async def pause(call: RequestContext) -> Response:
    """Running nodes finish, no new ones start."""
    id = call.path["execution"]
    return Reply(
        Acted(execution_id=id, status="paused", changed=await call.server.services.executions.pause(id))
    )


@actions(
    "POST",
    "/executions/{execution}/resume",
    "Resume a paused execution",
    permission="run",
    response=Acted,
    responses={409: "The execution has ended."},
)
async def resume(call: RequestContext) -> Response:
    """Continues where it was paused."""
    id = call.path["execution"]
    return Reply(
        Acted(execution_id=id, status="running", changed=await call.server.services.executions.resume(id))
    )


@actions(
    "POST",
    "/executions/{execution}/retry",
    "Retry failed nodes in a new execution",
    permission="run",
    body=RetryBody,
    optional=True,
    response=Started,
    status=202,
    responses=_RERUN_RESPONSES,
    headers=("Idempotency-Key",),
    example={"failed_items": True},
)
async def retry(call: RequestContext) -> Response:
    """Keeps the results of nodes that succeeded. With `failed_items` only the failed items of splits run again."""
    accepted = await call.server.services.executions.retry(
        call.path["execution"], failed_items=call.body.failed_items, key=key_of(call)
    )
    return accepted_reply(accepted)


@actions(
    "POST",
    "/executions/{execution}/rerun",
    "Rerun a node and all nodes after it in a new execution",
    permission="run",
    body=RerunBody,
    response=Started,
    status=202,
    responses=_RERUN_RESPONSES,
    headers=("Idempotency-Key",),
    example={"node": "price", "item": "users:5"},
)
async def rerun(call: RequestContext) -> Response:
    """In one item, or in all items."""
    accepted = await call.server.services.executions.rerun(
        call.path["execution"], call.body.node, item=call.body.item, key=key_of(call)
    )
    return accepted_reply(accepted)


@actions(
    "POST",
    "/executions/{execution}/signals",
    "Send a signal",
    permission="run",
    body=SignalBody,
    limit=LIMITS.body_bytes,
    response=Heard,
    responses={409: "The execution has ended, or several items wait and none is named."},
    headers=("Idempotency-Key",),
    example={"name": "approved", "value": {"by": "ada"}},
)
async def signal(call: RequestContext) -> Response:
    """Stored until a node waits for it; under an idempotency key it is delivered once."""
    body: SignalBody = call.body
    result = await call.server.services.executions.signal(
        call.path["execution"], body.name, bytes(body.value), key=key_of(call), item=body.item
    )
    return Reply(Heard(id=result.id, resumed=result.resumed))
