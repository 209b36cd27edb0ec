"""An effect that outlives every crash and says when it was made: a line in a file, outside of all stores."""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

from rune.nodes.custom import NodeContext, node

LEDGER = "RUNE_CHAOS_LEDGER"


class Made(NamedTuple):
    """One effect: when (epoch s), under which key, at which attempt."""

    at: float
    key: str
    attempt: int


@node("chaos.effect")
async def effect(ctx: NodeContext, did: str, fail_attempts: int = 0) -> dict[str, Any]:
    """Writes a line, in one act, then fails as often as it is told to."""
    handle = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{time.time():.6f} {ctx.attempt} {ctx.idempotency_key}\n".encode())
    finally:
        os.close(handle)
    if ctx.attempt <= fail_attempts:
        raise RuntimeError("told to fail")
    return {"did": did}


def made(text: str) -> list[Made]:
    """What a ledger says."""
    lines = (line.split(" ", 2) for line in text.splitlines())
    return [Made(float(at), key, int(attempt)) for at, attempt, key in lines]
