"""A node type whose effect is a line with its time in a file outside of all stores."""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

from rune.nodes.custom import NodeContext, node

LEDGER = "RUNE_CHAOS_LEDGER"


class Effect(NamedTuple):
    """An effect: its time (epoch seconds), idempotency key and attempt."""

    at: float
    key: str
    attempt: int


@node("chaos.effect")
async def effect(ctx: NodeContext, did: str, fail_attempts: int = 0) -> dict[str, Any]:
    """Append a line in one write, then fail the first `fail_attempts` attempts."""
    handle = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{time.time():.6f} {ctx.attempt} {ctx.idempotency_key}\n".encode())
    finally:
        os.close(handle)
    if ctx.attempt <= fail_attempts:
        raise RuntimeError("failed on purpose")
    return {"did": did}


def read_effects(text: str) -> list[Effect]:
    """Parse a ledger."""
    lines = (line.split(" ", 2) for line in text.splitlines())
    return [Effect(float(at), key, int(attempt)) for at, attempt, key in lines]
