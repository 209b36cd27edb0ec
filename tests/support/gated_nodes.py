"""Custom nodes that report, log and wait until a test lets them continue, in the process of the test."""

from __future__ import annotations

import asyncio
import logging

from rune.errors import NodeFailure
from rune.nodes.custom import NodeContext, kind_of, node
from rune.nodes.registry import Registry, standard_registry

_gates: dict[str, asyncio.Event] = {}
TIMEOUT_S = 120.0


def gate(name: str) -> asyncio.Event:
    """Return the gate of this name; a node waits until it is set."""
    return _gates.setdefault(name, asyncio.Event())


def close_gates() -> None:
    """Forget all gates: one that was used belongs to the event loop of its test."""
    _gates.clear()


@node("gated.wait")
async def wait_at_gate(ctx: NodeContext, name: str) -> str:
    """Reports, logs, waits at a gate."""
    ctx.progress(0.4)
    ctx.log("before the gate", name=name)
    logging.getLogger("acme").warning("standing at %s", name)
    async with asyncio.timeout(TIMEOUT_S):
        await gate(name).wait()
    ctx.log("behind the gate", level="warning")
    return name


@node("gated.second_try")
async def second_try(ctx: NodeContext, name: str) -> str:
    """Fails in its first attempt, then waits at a gate."""
    ctx.log("trying", attempt=ctx.attempt)
    if ctx.attempt == 1:
        raise NodeFailure("not yet", code="BUSY")
    async with asyncio.timeout(TIMEOUT_S):
        await gate(name).wait()
    return name


@node("gated.lines")
async def many_lines(ctx: NodeContext, count: int, width: int = 100) -> int:
    """Logs many lines."""
    for number in range(count):
        ctx.log(f"{number:06d} " + "x" * width)
    return count


@node("gated.pure", effectful=False)
def pure_lines(ctx: NodeContext) -> str:
    """Logs although it has no effects."""
    ctx.log("computed", level="debug")
    return "done"


@node("gated.quiet")
async def quiet(ctx: NodeContext) -> str:
    """Logs nothing."""
    return "quiet"


def gated_registry() -> Registry:
    functions = (wait_at_gate, second_try, many_lines, pure_lines, quiet)
    kinds = [kind_of(each) for each in functions]
    return Registry([*standard_registry(), *(each for each in kinds if each is not None)])
