"""Nodes whose effect survives a crash: a line in the ledger file."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from rune.nodes.custom import NodeContext, node


def _write(line: str) -> None:
    """Append a line with one write and wait until it is on disk."""
    handle = os.open(os.environ["RUNE_TEST_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{line}\n".encode())
        os.fsync(handle)
    finally:
        os.close(handle)


@node("ledger.effect")
async def effect(ctx: NodeContext, did: str, fail_attempts: int = 0) -> dict[str, Any]:
    """Record the idempotency key, then fail for the given number of attempts."""
    _write(f"{ctx.idempotency_key}#{ctx.attempt}")
    if ctx.attempt <= fail_attempts:
        raise RuntimeError("told to fail")
    return {"did": did}


@node("ledger.gate")
def gate(ctx: NodeContext, opens: str) -> dict[str, Any]:
    """Record the idempotency key, then block until a pipe is written and closed."""
    _write(f"{ctx.idempotency_key}#{ctx.attempt}")
    with Path(opens).open() as pipe:
        return {"said": pipe.read().strip()}


@node("ledger.fill", effectful=False)
def fill(filler: str, once: str) -> str:
    """Fill the disk on the first run."""
    if not Path(once).exists():
        fill_disk(Path(filler))
        Path(once).touch()
    return "filled"


def fill_disk(filler: Path) -> None:
    """Write a file until the disk is full."""
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        for size in (65_536, 4_096, 512, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
