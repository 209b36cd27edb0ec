"""Hooks: requests from outside that start executions. The bytes are proved before anything is read out of them."""

from __future__ import annotations

import base64
import re
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from fastapi import APIRouter, Request
from starlette.datastructures import Headers
from starlette.responses import Response

from rune.core.hook import DELIVERY, Hook
from rune.core.jsontext import decode_json
from rune.core.limits import LIMITS
from rune.errors import InvalidDocument
from rune.master.body import media_type, read_body
from rune.master.problems import ApiError
from rune.master.proof import check_header, check_signature
from rune.master.reply import Reply
from rune.master.service import Master
from rune.ports.trigger import Trigger, Triggers
from rune.runtime.starts import Started

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
    master: Master = request.app.state.master
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


async def _found(triggers: Triggers, path: str) -> Trigger | None:
    trigger = await triggers.at_path(path) if _PATH.fullmatch(path) else None
    return trigger if trigger is not None and trigger.enabled else None


def _delivery(headers: Headers, hook: Hook) -> str:
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
            raise InvalidDocument(decoded.problems)
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


async def _answer(master: Master, hook: Hook, started: Started) -> Response:
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
