"""Hooks: what an HTTP request that starts an execution has to look like, and whether its signature holds."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Literal

import msgspec

Proof = Literal["none", "header", "hmac"]
Answer = Literal["accepted", "result"]

SIGNATURE = "x-rune-signature"
TIMESTAMP = "x-rune-timestamp"
DELIVERY = ("x-delivery-id", "idempotency-key", "x-github-delivery")
"""Headers that may name a delivery, in this order."""

_SIGNATURE = re.compile(r"sha256=([0-9a-f]{64})")
_TIMESTAMP = re.compile(r"[0-9]{1,12}")


class Hook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request has to be like."""

    path: str | None = None
    method: str = "POST"
    auth: Proof = "none"
    window: int = 300  # s that a signature is good for
    delivery: tuple[str, ...] = DELIVERY
    respond: Answer = "accepted"
    wait: float = 30.0  # s that somebody who wants the result waits for it
    max_bytes: int = 1024 * 1024


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """The signature of a body that is sent at a moment (epoch seconds)."""
    return "sha256=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def flaw(
    secret: str, timestamp: str | None, signature: str | None, body: bytes, now: int, window: int
) -> str | None:
    """What is wrong with a signature; None: nothing. `now` in epoch ms, `window` in s."""
    if not timestamp or not signature:
        return "missing"
    if not _TIMESTAMP.fullmatch(timestamp) or not _SIGNATURE.fullmatch(signature):
        return "malformed"
    if not hmac.compare_digest(sign(secret, timestamp, body), signature):
        return "wrong"
    # The moment is believed only now that the signature over it holds.
    return "old" if abs(now - int(timestamp) * 1000) > window * 1000 else None


def good_until(timestamp: str, window: int) -> int:
    """Until when a signature that holds may come again, in epoch ms."""
    return (int(timestamp) + window + 1) * 1000
