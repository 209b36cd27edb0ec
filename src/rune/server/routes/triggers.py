"""Routes for triggers: webhooks and schedules; and the webhooks, requests of other systems that start executions.

The secret header or the signature is verified before the body is parsed. Why a verification failed is only logged; the
response is always the same. What proves the caller (a header, a query parameter or a signature) and its copies are not
part of the start payload, which is stored and shown to everyone who may view the execution.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import operator
import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Annotated, Any
from urllib.parse import parse_qsl, unquote

import msgspec
from fastapi import Body, Depends, Query, Request
from pydantic import Field
from starlette.datastructures import Headers
from starlette.responses import Response

from rune.core.definition.problems import Problem
from rune.core.definition.strict_json import decode_json
from rune.core.limits import LIMITS
from rune.core.permissions import Principal, permits
from rune.core.triggers import DELIVERY, SIGNATURE, TIMESTAMP, WebhookConfig, replay_deadline, signature_error
from rune.errors import InvalidDocumentError
from rune.nodes.control.schedule import check_schedule, next_times
from rune.nodes.named_secrets import REDACTED
from rune.nodes.redaction import MIN_SECRET_LENGTH, Redactor
from rune.nodes.schema import Unit
from rune.ports.credentials import AnyFields, ApiKey, Basic, Bearer, CredentialError, Custom, Header
from rune.ports.workflows import Trigger, TriggerNotFoundError, TriggerStore
from rune.runtime.maintenance.trigger_scheduler import TriggeredStart
from rune.runtime.off_loop import off_loop
from rune.server.auth import requires
from rune.server.context import ServerContext
from rune.server.responses import ApiError, MethodNotAllowedError, Reply, documented
from rune.server.routing import (
    MAX_INLINE_BODY_BYTES,
    Caller,
    Id,
    JsonBody,
    Omittable,
    QueryModel,
    Server,
    TriggerId,
    example,
    hidden,
    media_type,
    read_body,
    resource,
)
from rune.server.schemas import (
    RotatedView,
    TriggerList,
    TriggerView,
    View,
    moment,
    rotated_view,
    trigger_view,
)

triggers = resource("triggers")


class TriggerQuery(QueryModel):
    """Filters of the list of triggers."""

    workflow: Omittable[Id] = None


class RotateTriggerBody(JsonBody):
    """Options of a rotation: a new secret instead of a new path."""

    secret: bool = False


async def find_visible(trigger: TriggerId, server: Server, caller: Caller) -> Trigger:
    """Return the trigger of a path, if the caller may see its workflow."""
    found = await server.services.triggers.find(trigger)
    if not caller.sees(found.workflow):
        raise TriggerNotFoundError(f"there is no trigger `{trigger}`")
    return found


VisibleTrigger = Annotated[Trigger, Depends(find_visible)]


@triggers.get(
    "/triggers",
    summary="List triggers",
    dependencies=[requires("view")],
    response_model=TriggerList,
)
async def list_triggers(
    query: Annotated[TriggerQuery, Query()],
    server: Server,
    caller: Caller,
) -> Response:
    """For all workflows, or for one."""
    found = await server.services.triggers.list(query.workflow)
    shown = [_view(each, caller) for each in found if caller.sees(each.workflow)]
    return Reply(TriggerList(triggers=shown))


@triggers.get(
    "/triggers/{trigger}",
    summary="Get a trigger",
    dependencies=[requires("view")],
    response_model=TriggerView,
)
async def get_trigger(
    trigger: VisibleTrigger,
    caller: Caller,
) -> Response:
    """By id."""
    return Reply(_view(trigger, caller))


@triggers.post(
    "/triggers/{trigger}/enable",
    summary="Enable a trigger",
    dependencies=[requires("edit")],
    response_model=TriggerView,
)
async def enable_trigger(
    trigger: VisibleTrigger,
    server: Server,
    caller: Caller,
) -> Response:
    """Starts that were due while it was disabled are not made up for."""
    return Reply(_view(await server.services.triggers.enable(trigger.id, True), caller))


@triggers.post(
    "/triggers/{trigger}/disable",
    summary="Disable a trigger",
    dependencies=[requires("edit")],
    response_model=TriggerView,
)
async def disable_trigger(
    trigger: VisibleTrigger,
    server: Server,
    caller: Caller,
) -> Response:
    """A disabled webhook responds with 404; a disabled schedule is never due."""
    return Reply(_view(await server.services.triggers.enable(trigger.id, False), caller))


@triggers.post(
    "/triggers/{trigger}/rotate",
    summary="Rotate the path or the secret of a webhook",
    dependencies=[requires("edit")],
    response_model=RotatedView,
    responses=documented({409: "The path or the secret is not generated, so it cannot be rotated."}),
)
async def rotate_trigger(
    trigger: VisibleTrigger,
    body: Annotated[
        RotateTriggerBody, Body(default_factory=RotateTriggerBody, openapi_examples=example({"secret": True}))
    ],
    server: Server,
) -> Response:
    """The old one is invalid from now on."""
    rotated = await server.services.triggers.rotate(trigger.id, body.secret)
    return Reply(rotated_view(rotated))


class SchedulePreviewBody(JsonBody):
    """The times of a `schedule` node: `cron` in a `timezone`, or every `amount` of a `unit`."""

    cron: Annotated[str, Field(max_length=200)] | None = None
    timezone: Annotated[str, Field(max_length=100)] = "UTC"
    amount: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    unit: Unit = "minutes"
    count: Annotated[int, Field(ge=1, le=100, description="The number of times to return.")] = 5


class SchedulePreview(View, frozen=True, kw_only=True):
    """The next times at which a schedule would start an execution, or what is wrong with it."""

    ticks: list[str]
    problems: list[Problem]


@triggers.post(
    "/schedules/preview",
    summary="List the next times of a schedule",
    dependencies=[requires("view")],
    response_model=SchedulePreview,
)
async def preview_schedule(
    body: Annotated[
        SchedulePreviewBody,
        Body(openapi_examples=example({"cron": "0 9 * * 1-5", "timezone": "Europe/Berlin"})),
    ],
    server: Server,
) -> Response:
    """As if it were deployed now. Nothing is stored."""
    given = body.model_dump(exclude={"count"}, exclude_none=True)
    problems = check_schedule(given)
    ticks = [] if problems else next_times(given, server.clock.now(), body.count)
    return Reply(SchedulePreview(ticks=[moment(each) for each in ticks], problems=problems))


def _view(trigger: Trigger, principal: Principal) -> TriggerView:
    return trigger_view(trigger, with_path=principal.may("run"))


log = logging.getLogger("rune.webhooks")
hooks = hidden()
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
MAX_PROXIES = 3
MAX_FORM_FIELDS = 10_000
PAYLOAD_DEPTH = 2  # levels that the start payload adds around the body
_URL_SAFE = str.maketrans("+/", "-_")
_PATH = re.compile(r"[A-Za-z0-9._-]{1,128}")
_SENSITIVE = re.compile(r"auth|cookie|token|secret|signature|passw|credential|key|session")
"""Names of headers whose values may be secret; they are left out of the start payload."""


class Proof:
    """What proved the caller: the name of a header or query parameter, and the secrets in its value."""

    def __init__(self, name: str, secrets: Iterable[str] = ()) -> None:
        """A short secret says nothing: it is part of many other values."""
        self._name = name
        self._secrets = [each for each in secrets if len(each) >= MIN_SECRET_LENGTH]
        self._redactor = Redactor(self._secrets)

    def occurs_in(self, name: str, value: str) -> bool:
        """Whether a header or query parameter carries the proof: by its name, or as a part such as the query of a
        referrer, in any encoding that a proxy or a library may give it."""
        return name.lower() == self._name or self._is_in(name) or self._is_in(value)

    def _is_in(self, text: str) -> bool:
        return bool(self._secrets) and any(self._redactor.finds(form) for form in _unquoted(text))

    def without(self, value: Any) -> Any:
        """Return a body, as JSON, without the proof; the same object if it does not occur."""
        if not self._secrets:
            return value
        clean = self._redactor.value(value)
        return self._without_quoted(clean) if b"%" in msgspec.json.encode(clean) else clean

    def without_in_bytes(self, body: bytes) -> bytes:
        """Return a binary body without the proof."""
        return self._redactor.bytes(body)

    def _without_quoted(self, value: Any) -> Any:
        """Replace each text that contains the proof in several layers of percent-encoding."""
        match value:
            case str():
                return REDACTED if self._is_in(value) else value
            case dict():
                pairs = [
                    (self._without_quoted(key), self._without_quoted(each)) for key, each in value.items()
                ]
                same = all(key in value and value[key] is each for key, each in pairs)
                return value if same else dict(pairs)
            case list():
                found = [self._without_quoted(each) for each in value]
                return value if all(map(operator.is_, found, value)) else found
            case _:
                return value


def signature_proof(signature: str, secret: str) -> Proof:
    """Return the proof of a signed request: the signature as it was sent, its digits, its bytes, and the secret."""
    digits = signature.rpartition("=")[2]
    raw = base64.b64encode(bytes.fromhex(digits)).decode()
    return Proof(SIGNATURE, (digits, raw.rstrip("="), raw.translate(_URL_SAFE).rstrip("="), secret))


def _unquoted(text: str) -> Iterator[str]:
    """Yield a text as it is, and with its percent-encoding removed as often as a chain of proxies may have added it."""
    yield text
    for _ in range(MAX_PROXIES):
        if "%" not in text:
            return
        text = unquote(text)
        yield text


async def check_header(server: ServerContext, trigger: Trigger, request: Request) -> Proof:
    """Reject a request without the secret header. Return where the secret was."""
    fields = await _fields(server, trigger)
    expected, sent = _expected(fields), ""
    if isinstance(fields, ApiKey) and fields.place == "query":
        sent = request.query_params.get(fields.name, "")
    elif expected is not None:
        sent = request.headers.get(expected[0], "")
    if expected is None:
        raise rejected(trigger, "a credential of this type has no header")
    if not hmac.compare_digest(sent.encode(), expected[1].encode()):
        raise rejected(trigger, "the secret header is missing or wrong")
    return Proof(expected[0].lower(), _secrets(fields))


async def check_signature(
    server: ServerContext,
    triggers: TriggerStore,
    trigger: Trigger,
    hook: WebhookConfig,
    request: Request,
    body: bytes,
    name: str,
) -> tuple[str, Proof]:
    """Reject a body whose signature is invalid or was used by another delivery. Return the name of the delivery,
    derived from the signature if the request has none, and what proved the caller."""
    secret = _secret(await _fields(server, trigger))
    timestamp, signature = _single(request.headers, TIMESTAMP), _single(request.headers, SIGNATURE)
    if secret is None:
        raise rejected(trigger, "a credential of this type has no signing secret")
    wrong = signature_error(secret, timestamp, signature, body, server.clock.now(), hook.window)
    if wrong is not None:
        raise rejected(trigger, f"the signature is {wrong}")
    assert timestamp is not None
    assert signature is not None
    proof = signature_proof(signature, secret)
    mark = hashlib.sha256(signature.encode()).hexdigest()
    if proof.occurs_in("", name):  # the name is stored
        name = f"hashed:{hashlib.sha256(name.encode()).hexdigest()}"
    delivery = name or f"signed:{mark}"
    first = await triggers.remember_delivery(
        trigger.id, mark, delivery, replay_deadline(timestamp, hook.window)
    )
    # crash here: the signature is stored but nothing was started, so the same request is accepted again.
    replayed = first != delivery or (not name and await server.engine.starts.has_started(trigger, delivery))
    if replayed:
        raise rejected(trigger, "the signature was used before")
    return delivery, proof


def rejected(trigger: Trigger, why: str) -> ApiError:
    """Log the reason and return the error, which is the same for all reasons."""
    log.info("rejected a webhook request to %s/%s: %s", trigger.workflow, trigger.node, why)
    return ApiError("the request is not authenticated", code="NOT_PROVED")


async def _fields(server: ServerContext, trigger: Trigger) -> AnyFields:
    if trigger.credential is None:
        raise rejected(trigger, "the trigger has no secret yet")
    try:
        found = await server.engine.backend.credentials.resolve(trigger.credential)
    except CredentialError as error:
        log.warning(
            "cannot read the secret of the webhook %s/%s: %s", trigger.workflow, trigger.node, error.message
        )
        found = None
    if found is None:
        raise rejected(trigger, f"there is no credential `{trigger.credential}`")
    granted = await server.engine.backend.grants.of(found.id)
    if not permits(granted, f"trigger:{trigger.id}", trigger.workflow, stored=True):
        raise rejected(trigger, f"the credential `{found.name}` is not granted to the trigger")
    return found.fields


def _expected(fields: AnyFields) -> tuple[str, str] | None:
    """Return the name and value of the header or query parameter that carries a credential."""
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


def _secrets(fields: AnyFields) -> tuple[str, ...]:
    """Return the secrets in what `_expected` returns."""
    match fields:
        case Basic():
            return fields.password, f"{fields.username}:{fields.password}"
        case Header():  # such as `Token …`
            return fields.value, *fields.value.split()
        case _:
            return tuple(each for each in (_secret(fields),) if each is not None)


def _secret(fields: AnyFields) -> str | None:
    """Return the signing secret of a credential."""
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
    proof = Proof(SIGNATURE)
    if hook.auth == "header":
        proof = await check_header(server, trigger, request)
    body = await read_body(request, hook.max_bytes)
    name = _delivery(request.headers, hook)
    if hook.auth == "hmac":
        name, proof = await check_signature(server, triggers, trigger, hook, request, body, name)
    payload = partial(_payload, request, body, proof)
    encoded = payload() if len(body) <= MAX_INLINE_BODY_BYTES else await off_loop(payload)
    started = await server.engine.starts.delivery(trigger, name or None, encoded)
    return await _respond(server, hook, started)


async def _find_enabled(triggers: TriggerStore, path: str) -> Trigger | None:
    trigger = await triggers.at_path(path) if _PATH.fullmatch(path) else None
    return trigger if trigger is not None and trigger.enabled else None


def _delivery(headers: Headers, hook: WebhookConfig) -> str:
    """Return the name of the delivery; empty if the request has none."""
    for each in hook.delivery:
        name = _single(headers, each)
        if name is not None:
            if not (0 < len(name) <= 255 and name.isascii() and name.isprintable()):
                raise ApiError(f"{each}: must have 1 to 255 printable characters", code="BAD_HEADER")
            return name
    return ""


def _single(headers: Headers, name: str) -> str | None:
    """Return a header that a request may have once. Of several, programs on the way may each read another one."""
    found = headers.getlist(name)
    if len(found) > 1:
        raise ApiError(f"the request has {len(found)} `{name}` headers, not one", code="BAD_REQUEST")
    return found[0] if found else None


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
    return Reply(document, 200 if started.again else 202)
