"""Nodes with an effect that outlives every crash: a line in a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rune.nodes.custom import NodeContext, node


def _write(line: str) -> None:
    """Appended in one act and on disk before the node goes on, as a payment would be."""
    handle = os.open(os.environ["RUNE_TEST_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{line}\n".encode())
        os.fsync(handle)
    finally:
        os.close(handle)


@node("ledger.effect")
async def effect(ctx: NodeContext, did: str, fail_attempts: int = 0) -> dict[str, Any]:
    """Writes its key down, then fails as often as it is told to."""
    _write(f"{ctx.key}#{ctx.attempt}")
    if ctx.attempt <= fail_attempts:
        raise RuntimeError("told to fail")
    return {"did": did}


@node("ledger.gate")
def gate(ctx: NodeContext, opens: str) -> dict[str, Any]:
    """Writes its key down, then runs until somebody writes into a pipe."""
    _write(f"{ctx.key}#{ctx.attempt}")
    with Path(opens).open() as pipe:
        return {"said": pipe.read().strip()}
