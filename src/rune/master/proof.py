"""Proof: whether whoever calls a hook knows its secret. Why it does not hold is told to the log alone."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging

from starlette.requests import Request

from rune.core.hook import SIGNATURE, TIMESTAMP, Hook, flaw, good_until
from rune.core.rights import permits
from rune.master.problems import ApiError
from rune.master.service import Master
from rune.ports.secret import AnyFields, ApiKey, Basic, Bearer, Custom, Header, SecretError
from rune.ports.trigger import Trigger, Triggers

log = logging.getLogger("rune.hooks")


async def check_header(master: Master, trigger: Trigger, request: Request) -> None:
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
    master: Master, triggers: Triggers, trigger: Trigger, hook: Hook, request: Request, body: bytes, name: str
) -> str:
    """Refuse a body whose signature does not hold or has come before under another name than this; the name of the
    delivery otherwise, which is one made of the signature where there is none."""
    secret = _secret(await _fields(master, trigger))
    timestamp, signature = request.headers.get(TIMESTAMP), request.headers.get(SIGNATURE)
    if secret is None:
        raise refused(trigger, "its credential is of a type that signs nothing")
    wrong = flaw(secret, timestamp, signature, body, master.clock.now(), hook.window)
    if wrong is not None:
        raise refused(trigger, f"the signature is {wrong}")
    assert timestamp is not None
    assert signature is not None
    mark = hashlib.sha256(signature.encode()).hexdigest()
    delivery = name or f"signed:{mark}"
    first = await triggers.saw(trigger.id, mark, delivery, good_until(timestamp, hook.window))
    # Who died between the two lines, this one and the start, left no execution: the same may come again.
    replayed = first != delivery or (not name and await master.engine.starts.has_started(trigger, delivery))
    if replayed:
        raise refused(trigger, "the signature has come before")
    return delivery


def refused(trigger: Trigger, why: str) -> ApiError:
    """The one answer to everybody who proves nothing."""
    log.info("a request to %s/%s is refused: %s", trigger.workflow, trigger.node, why)
    return ApiError("the request is not proved to come from who may send it", code="NOT_PROVED")


async def _fields(master: Master, trigger: Trigger) -> AnyFields:
    if trigger.credential is None:
        raise refused(trigger, "it has no secret yet")
    try:
        found = await master.engine.backend.secret.resolve(trigger.credential)
    except SecretError as error:
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
