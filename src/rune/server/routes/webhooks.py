"""Webhooks: requests of other systems that start executions. What proves the caller is not part of the start payload,
which is stored and shown to everyone who may view the execution.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from fastapi import Request
from starlette.datastructures import Headers
from starlette.responses import Response

from rune.core.definition.strict_json import decode_json
from rune.core.limits import LIMITS
from rune.core.webhooks import DELIVERY, SIGNATURE, WebhookConfig
from rune.errors import InvalidDocumentError
from rune.off_loop import off_loop
from rune.ports.workflows import Trigger, TriggerStore
from rune.runtime.services.triggered_starts import TriggeredStart
from rune.server.auth import requires
from rune.server.bodies import read_body, release_body
from rune.server.context import ServerContext
from rune.server.responses import Accepted, ApiError, MethodNotAllowedError, Reply
from rune.server.routing import (
    MAX_INLINE_BODY_BYTES,
    Server,
    hidden,
    media_type,
)
from rune.server.webhook_proof import Proof, check_header, check_signature, single

hooks = hidden()
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
MAX_FORM_FIELDS = 10_000
PAYLOAD_DEPTH = 2  # levels that the start payload adds around the body
_PATH = re.compile(r"[A-Za-z0-9._-]{1,128}")
_SENSITIVE = re.compile(r"auth|cookie|token|secret|signature|passw|credential|key|session")
"""Names of headers whose values may be secret; they are left out of the start payload."""


@hooks.api_route("/hooks/{path}", methods=METHODS, dependencies=[requires("hook")])
async def take(path: str, request: Request, server: Server) -> Response:
    """Start the workflow of the webhook at this path."""
    triggers = server.engine.backend.triggers
    trigger = await _find_enabled(triggers, path)
    if trigger is None or trigger.hook is None:
        raise ApiError("no webhook has this path", code="NOT_FOUND")
    hook = trigger.hook
    if request.method != hook.method:
        raise MethodNotAllowedError(f"this webhook accepts only {hook.method}", hook.method)
    started = await _start(server, trigger, hook, request)
    release_body(request)
    return await _respond(server, hook, started)


async def _start(
    server: ServerContext, trigger: Trigger, hook: WebhookConfig, request: Request
) -> TriggeredStart:
    """Verify a request and start the workflow."""
    proof = Proof(SIGNATURE)
    if hook.auth == "header":
        proof = await check_header(server, trigger, request)
    # Signatures are verified after the body was read.
    body = await read_body(request, hook.max_bytes, proved=hook.auth == "header")
    name = _delivery(request.headers, hook)
    if hook.auth == "hmac":
        triggers = server.engine.backend.triggers
        name, proof = await check_signature(server, triggers, trigger, hook, request, body, name)
    payload = partial(_payload, request, body, proof)
    encoded = payload() if len(body) <= MAX_INLINE_BODY_BYTES else await off_loop(payload)
    return await server.engine.starts.delivery(trigger, name or None, encoded)


async def _find_enabled(triggers: TriggerStore, path: str) -> Trigger | None:
    trigger = await triggers.at_path(path) if _PATH.fullmatch(path) else None
    return trigger if trigger is not None and trigger.enabled else None


def _delivery(headers: Headers, hook: WebhookConfig) -> str:
    """Return the name of the delivery; empty if the request has none."""
    for each in hook.delivery:
        name = single(headers, each)
        if name is not None:
            if not (0 < len(name) <= 255 and name.isascii() and name.isprintable()):
                raise ApiError(f"{each}: must have 1 to 255 printable characters", code="BAD_HEADER")
            return name
    return ""


def _payload(request: Request, body: bytes, proof: Proof) -> bytes:
    """Encode a request as start payload, without what proved its caller."""
    return msgspec.json.encode(
        {
            "method": request.method,
            "headers": _without_secrets(request.headers, proof),
            "query": _grouped(
                each for each in request.query_params.multi_items() if not proof.occurs_in(*each)
            ),
            "body": _body(media_type(request), body, proof),
        }
    )


def _without_secrets(headers: Headers, proof: Proof) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for name, value in headers.items():
        if not proof.occurs_in(name, value) and (name in DELIVERY or not _SENSITIVE.search(name)):
            found.setdefault(name, []).append(value)
    return {name: ", ".join(values) for name, values in found.items()}


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return values by name: one as a string, several as a list. Takes time proportional to the number of pairs."""
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _body(kind: str, body: bytes, proof: Proof) -> Any:
    """Convert a body: JSON unchanged, a form to an object, text to a string, other data to base64. What proved the
    caller is left out of each."""
    if not body:
        return None
    if kind == "application/json" or kind.endswith("+json"):
        depth = LIMITS.json_depth - PAYLOAD_DEPTH
        decoded = decode_json(body, max_bytes=len(body), max_depth=depth, root="body")
        if decoded.problems:
            raise InvalidDocumentError(decoded.problems)
        clean = proof.without(decoded.value)
        # The text of the sender keeps the digits of its numbers.
        return msgspec.Raw(body.removeprefix(b"\xef\xbb\xbf")) if clean is decoded.value else clean
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(proof.without_in_bytes(body)).decode()}
    if kind != "application/x-www-form-urlencoded":
        return proof.without(text)
    try:
        return proof.without(
            _grouped(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FORM_FIELDS))
        )
    except ValueError:
        raise ApiError(f"the form has more than {MAX_FORM_FIELDS:,} fields", code="TOO_LARGE") from None


async def _respond(server: ServerContext, hook: WebhookConfig, started: TriggeredStart) -> Response:
    document: dict[str, Any] = {"execution_id": started.execution, "replayed": started.again}
    if hook.respond == "result":
        with server.feeds.awaiting(started.execution) as end:
            summary = await server.reader.execution(started.execution)
            if summary is not None and summary.ended_at is None:
                await end.wait(hook.wait)
                summary = await server.reader.execution(started.execution)
        if summary is not None and summary.ended_at is not None:
            output = await (await server.reader.history(started.execution)).encoded_output()
            return Reply({**document, "status": summary.status, "output": msgspec.Raw(output)})
    return (Reply if started.again else Accepted)(document)
