"""Proof: whether whoever calls a hook knows its secret. Why it does not hold is told to the log alone.

Hooks: requests from outside that start executions. The bytes are proved before anything is read out of them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from fastapi import APIRouter, Request
from starlette.datastructures import Headers
from starlette.responses import Response

from rune.core.definition.strict_json import decode_json
from rune.core.limits import LIMITS
from rune.core.permissions import permits
from rune.core.triggers import DELIVERY, SIGNATURE, TIMESTAMP, WebhookConfig, replay_deadline, signature_error
from rune.errors import InvalidDocumentError
from rune.ports.credentials import AnyFields, ApiKey, Basic, Bearer, CredentialError, Custom, Header
from rune.ports.triggers import Trigger, TriggerStore
from rune.runtime.maintenance.trigger_scheduler import TriggeredStart
from rune.server.context import ServerContext
from rune.server.requests import media_type, read_body
from rune.server.responses import ApiError, Reply

log = logging.getLogger("rune.hooks")


async def check_header(master: ServerContext, trigger: Trigger, request: Request) -> None:
    """Refuse a request without the secret header."""
    fields = await _fields(master, trigger)
    expected, given = _expected(fields), ""
    if isinstance(fields, ApiKey) and fields.place == "query":
        given = request.query_params.get(fields.name, "")
    elif expected is not None:
        given = request.headers.get(expected[0], "")
    if expected is None:
        raise refused(trigger, "its credential is of a type that makes no header")
    if not hmac.compare_digest(given.encode(), expected[1].encode()):
        raise refused(trigger, "the secret header is missing or wrong")


async def check_signature(
    master: ServerContext,
    triggers: TriggerStore,
    trigger: Trigger,
    hook: WebhookConfig,
    request: Request,
    body: bytes,
    name: str,
) -> str:
    """Refuse a body whose signature does not hold or has come before under another name than this; the name of the
    delivery otherwise, which is one made of the signature where there is none."""
    secret = _secret(await _fields(master, trigger))
    timestamp, signature = request.headers.get(TIMESTAMP), request.headers.get(SIGNATURE)
    if secret is None:
        raise refused(trigger, "its credential is of a type that signs nothing")
    wrong = signature_error(secret, timestamp, signature, body, master.clock.now(), hook.window)
    if wrong is not None:
        raise refused(trigger, f"the signature is {wrong}")
    assert timestamp is not None
    assert signature is not None
    mark = hashlib.sha256(signature.encode()).hexdigest()
    delivery = name or f"signed:{mark}"
    first = await triggers.remember_delivery(
        trigger.id, mark, delivery, replay_deadline(timestamp, hook.window)
    )
    # Who died between the two lines, this one and the start, left no execution: the same may come again.
    replayed = first != delivery or (not name and await master.engine.starts.has_started(trigger, delivery))
    if replayed:
        raise refused(trigger, "the signature has come before")
    return delivery


def refused(trigger: Trigger, why: str) -> ApiError:
    """The one answer to everybody who proves nothing."""
    log.info("a request to %s/%s is refused: %s", trigger.workflow, trigger.node, why)
    return ApiError("the request is not proved to come from who may send it", code="NOT_PROVED")


async def _fields(master: ServerContext, trigger: Trigger) -> AnyFields:
    if trigger.credential is None:
        raise refused(trigger, "it has no secret yet")
    try:
        found = await master.engine.backend.secret.resolve(trigger.credential)
    except CredentialError as error:
        log.warning("the secret of %s/%s cannot be read: %s", trigger.workflow, trigger.node, error.message)
        found = None
    if found is None:
        raise refused(trigger, f"there is no credential `{trigger.credential}`")
    granted = await master.engine.backend.grants.of(found.id)
    if not permits(granted, f"trigger:{trigger.id}", trigger.workflow, stored=True):
        raise refused(trigger, f"the credential `{found.name}` is not granted to it")
    return found.fields


def _expected(fields: AnyFields) -> tuple[str, str] | None:
    """The header or query parameter that a credential is sent in, and its value."""
    match fields:
        case Header():
            return fields.name, fields.value
        case ApiKey():
            return fields.name, fields.key
        case Bearer():
            return "authorization", f"Bearer {fields.token}"
        case Basic():
            pair = base64.b64encode(f"{fields.username}:{fields.password}".encode()).decode()
            return "authorization", f"Basic {pair}"
        case _:
            return None


def _secret(fields: AnyFields) -> str | None:
    """What a credential signs with."""
    match fields:
        case Header():
            return fields.value
        case ApiKey():
            return fields.key
        case Bearer():
            return fields.token
        case Basic():
            return fields.password
        case Custom():
            values = fields.values
            return values.get("secret") or (next(iter(values.values())) if len(values) == 1 else None)
        case _:
            return None


METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
AROUND = 2
"""How much deeper than the body the start payload is."""

_PATH = re.compile(r"[A-Za-z0-9._-]{1,128}")
_TELLING = re.compile(r"auth|cookie|token|secret|signature|passw|credential|key|session")
"""Headers whose names say that their value is nobody's business."""


def add_hooks(router: APIRouter) -> None:
    """Put the hooks on a router."""
    router.add_api_route("/hooks/{path}", take, methods=METHODS, include_in_schema=False)


async def take(request: Request) -> Response:
    """Start what the hook at this path is for."""
    master: ServerContext = request.app.state.master
    triggers = master.engine.backend.triggers
    trigger = await _found(triggers, request.path_params["path"])
    if trigger is None or trigger.hook is None:
        raise ApiError("there is no hook here", code="NOT_FOUND")
    hook = trigger.hook
    if request.method != hook.method:
        raise ApiError(f"this hook takes {hook.method}", code="NOT_ALLOWED")
    if hook.auth == "header":
        await check_header(master, trigger, request)
    body = await read_body(request, hook.max_bytes)
    name = _delivery(request.headers, hook)
    if hook.auth == "hmac":
        name = await check_signature(master, triggers, trigger, hook, request, body, name)
    started = await master.engine.starts.delivery(trigger, name or None, _payload(request, body))
    return await _answer(master, hook, started)


take.need = "hook"  # type: ignore[attr-defined]


async def _found(triggers: TriggerStore, path: str) -> Trigger | None:
    trigger = await triggers.at_path(path) if _PATH.fullmatch(path) else None
    return trigger if trigger is not None and trigger.enabled else None


def _delivery(headers: Headers, hook: WebhookConfig) -> str:
    """The name of the delivery; empty if it has none."""
    for each in hook.delivery:
        name = headers.get(each)
        if name is not None:
            if not (0 < len(name) <= 255 and name.isascii() and name.isprintable()):
                raise ApiError(f"{each}: 1 to 255 printable characters", code="BAD_HEADER")
            return name
    return ""


def _payload(request: Request, body: bytes) -> bytes:
    """The request as the start payload."""
    query: dict[str, Any] = {}
    for name in request.query_params:
        values = request.query_params.getlist(name)
        query[name] = values[0] if len(values) == 1 else values
    return msgspec.json.encode(
        {
            "method": request.method,
            "headers": _safe(request.headers),
            "query": query,
            "body": _body(media_type(request), body),
        }
    )


def _safe(headers: Headers) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in headers:
        if name in DELIVERY or not _TELLING.search(name):
            found[name] = ", ".join(headers.getlist(name))
    return found


def _body(kind: str, body: bytes) -> Any:
    """JSON as it is, a form as an object, text as text, and everything else in base64."""
    if not body:
        return None
    if kind == "application/json" or kind.endswith("+json"):
        depth = LIMITS.json_depth - AROUND
        decoded = decode_json(body, max_bytes=len(body), max_depth=depth, root="body")
        if decoded.problems:
            raise InvalidDocumentError(decoded.problems)
        return msgspec.Raw(body.removeprefix(b"\xef\xbb\xbf"))
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}
    if kind != "application/x-www-form-urlencoded":
        return text
    form: dict[str, Any] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        known = form.get(name)
        form[name] = value if known is None else [*(known if isinstance(known, list) else [known]), value]
    return form


async def _answer(master: ServerContext, hook: WebhookConfig, started: TriggeredStart) -> Response:
    said: dict[str, Any] = {"execution_id": started.execution, "replayed": started.again}
    if hook.respond == "result":
        summary = await master.reader.execution(started.execution)
        if summary is not None and summary.ended_at is None:
            await master.watches.until_end(started.execution, hook.wait)
            summary = await master.reader.execution(started.execution)
        if summary is not None and summary.ended_at is not None:
            output = await (await master.reader.history(started.execution)).output()
            return Reply({**said, "status": summary.status, "output": output})
    return Reply(said, 200 if started.again else 202)
