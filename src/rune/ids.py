"""Deterministic ids: every process derives the same id for the same token, timer or effect."""

from __future__ import annotations

import hashlib


def fraction(*parts: object) -> float:
    """Return a number in [0, 1) that depends only on the parts: jitter that every process computes alike."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def idempotency_key(root_execution: str, token_name: str) -> str:
    """Return the idempotency key of an external effect. It is the same for every attempt and resume of the token."""
    return f"{root_execution}:{token_name}"


def child_id(parent: str, token_name: str, attempt: int) -> str:
    """Return the id of the child execution of one attempt, the same for every delivery of that attempt."""
    parts = "\x1f".join((parent, token_name, str(attempt)))
    return "c" + hashlib.blake2b(parts.encode(), digest_size=15).hexdigest()
