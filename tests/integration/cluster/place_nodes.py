"""Nodes that tell where they ran."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from rune.nodes.custom import NodeContext, node


class Made(NamedTuple):
    """One effect, in the order in which they were made: under which key, by which process."""

    key: str
    process: int


def _file(ledger: str) -> str:
    return f"{ledger}.places"


def made(ledger: str) -> list[Made]:
    """Every effect that was made, oldest first."""
    with open(_file(ledger)) as lines:
        return [Made(key, int(process)) for key, process in map(str.split, lines)]


@node("place.process")
def process() -> int:
    """The process that ran it."""
    return os.getpid()


@node("place.effect")
async def effect(ctx: NodeContext, did: str) -> dict[str, Any]:
    """Writes down what it did and who did it, in one act."""
    handle = os.open(_file(os.environ["RUNE_TEST_LEDGER"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{ctx.idempotency_key}#{ctx.attempt} {os.getpid()}\n".encode())
    finally:
        os.close(handle)
    return {"did": did}
