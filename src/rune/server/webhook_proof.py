"""What proves the sender of a webhook: a header, a query parameter or a signature.

The secret header or the signature is verified before the body is parsed. Why a verification failed is only logged; the
response is always the same. The proof and its copies are redacted from what is kept of the request.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import operator
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

import msgspec
from fastapi import Request
from starlette.datastructures import Headers

from rune.core.permissions import permits
from rune.core.webhooks import SIGNATURE, TIMESTAMP, WebhookConfig, replay_deadline, signature_error
from rune.nodes.redaction import MIN_SECRET_LENGTH, REDACTED, Redactor
from rune.ports.credentials import AnyFields, ApiKey, Basic, Bearer, CredentialError, Custom, Header
from rune.ports.workflows import Trigger, TriggerStore
from rune.server.context import ServerContext
from rune.server.responses import ApiError

log = logging.getLogger("rune.webhooks")

MAX_PROXIES = 3
_URL_SAFE = str.maketrans("+/", "-_")


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
    timestamp, signature = single(request.headers, TIMESTAMP), single(request.headers, SIGNATURE)
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


def single(headers: Headers, name: str) -> str | None:
    """Return a header that a request may have once. Of several, programs on the way may each read another one."""
    found = headers.getlist(name)
    if len(found) > 1:
        raise ApiError(f"the request has {len(found)} `{name}` headers, not one", code="BAD_REQUEST")
    return found[0] if found else None
