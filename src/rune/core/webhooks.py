"""Webhooks: which requests are accepted. The signature of a request is verified, and for how long it can be replayed is
limited.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Literal

import msgspec

WebhookAuth = Literal["none", "header", "hmac"]
WebhookResponse = Literal["accepted", "result"]

SIGNATURE = "x-rune-signature"
TIMESTAMP = "x-rune-timestamp"
DELIVERY = ("x-delivery-id", "idempotency-key", "x-github-delivery")
"""Headers that may hold a delivery id, in order of precedence."""

_SIGNATURE = re.compile(r"sha256=([0-9a-f]{64})")
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


class WebhookConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request must satisfy, and how it is answered."""

    path: str | None = None
    method: str = "POST"
    auth: WebhookAuth = "none"
    window: int = 300  # s that a signature stays valid
    delivery: tuple[str, ...] = DELIVERY
    respond: WebhookResponse = "accepted"
    wait: float = 30.0  # s that a request with `respond: result` waits
    max_bytes: int = 1024 * 1024


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a body that is sent at a timestamp (epoch seconds)."""
    return "sha256=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def signature_error(
    secret: str, timestamp: str | None, signature: str | None, body: bytes, now: int, window: int
) -> str | None:
    """Return why a signature is invalid, or None. `now` is in epoch ms, `window` in s."""
    if not timestamp or not signature:
        return "missing"
    if not _TIMESTAMP.fullmatch(timestamp) or not _SIGNATURE.fullmatch(signature):
        return "malformed"
    if not hmac.compare_digest(sign(secret, timestamp, body), signature):
        return "wrong"
    # The timestamp is trusted only after the signature over it was verified.
    return "old" if abs(now - int(timestamp) * 1000) > window * 1000 else None


def replay_deadline(timestamp: str, window: int) -> int:
    """Return until when a valid signature can be replayed (epoch ms)."""
    return (int(timestamp) + window + 1) * 1000
