"""Node types that record the process in which they ran."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from typing import Any, NamedTuple

from rune.nodes.custom import NodeContext, node


class Effect(NamedTuple):
    """An effect: its idempotency key and the process that made it."""

    key: str
    process: int


def _file(ledger: str) -> str:
    return f"{ledger}.places"


def recorded_effects(ledger: str) -> list[Effect]:
    """Return all effects, oldest first."""
    with open(_file(ledger)) as lines:
        return [Effect(key, int(process)) for key, process in map(str.split, lines)]


@node("place.warnings")
def warn(text: str, times: int) -> int:
    """Log the same warning many times."""
    for _ in range(times):
        logging.getLogger("acme").warning("%s", text)
    return times


@node("place.process")
def process() -> int:
    """Return the id of the process that runs the node."""
    return os.getpid()


@node("place.effect")
async def effect(ctx: NodeContext, did: str) -> dict[str, Any]:
    """Append the effect and the process to the ledger."""
    _record(ctx)
    return {"did": did}


@node("place.block")
async def block(ctx: NodeContext, seconds: float) -> dict[str, Any]:
    """Append the effect and the process to the ledger, then block the event loop."""
    _record(ctx)
    threading.Event().wait(seconds)  # not awaited: blocking the loop is the purpose
    return {"blocked": seconds}


@node("place.rest")
async def rest(ctx: NodeContext, seconds: float) -> dict[str, Any]:
    """Append the effect and the process to the ledger, then take a while."""
    _record(ctx)
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=seconds)
    return {"rested": seconds}


@node("place.kill")
async def kill(ctx: NodeContext) -> None:
    """Append the effect and the process to the ledger, then kill the process."""
    _record(ctx)
    os.kill(os.getpid(), signal.SIGKILL)


def _record(ctx: NodeContext) -> None:
    """Write one line at once."""
    handle = os.open(_file(os.environ["RUNE_TEST_LEDGER"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{ctx.idempotency_key}#{ctx.attempt} {os.getpid()}\n".encode())
    finally:
        os.close(handle)
