"""Deterministic ids: the same token, timer or effect has the same name wherever it is computed."""

from __future__ import annotations

import hashlib


def fraction(*parts: object) -> float:
    """A number in [0, 1) that depends on nothing but the parts: jitter without randomness."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def idempotency_key(root_execution: str, token_name: str) -> str:
    """The key under which an outside effect is made once: no attempt and no resume in it."""
    return f"{root_execution}:{token_name}"


def child_id(parent: str, token_name: str, attempt: int) -> str:
    """The id of the execution that one attempt of a token starts: the same however often it is tried."""
    parts = "\x1f".join((parent, token_name, str(attempt)))
    return "c" + hashlib.blake2b(parts.encode(), digest_size=15).hexdigest()
