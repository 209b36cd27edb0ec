"""What must hold of messages whatever carries them. Who asks says how a document is run, or an engine opened."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.nodes.custom import kind_of, node
from rune.nodes.registry import standard_registry
from rune.runtime.worker import worker
from rune.runtime.worker.node_runner import NodeRunner
from tests.hazards.building import Fields, Opened, Ran, entry, gated, kind, sets, workflow

DEEP = "{{ $trigger.a.b.c + 1 }}"


def nothing_can_be_run(patched: pytest.MonkeyPatch, *delays: float) -> None:
    """The engine itself stumbles over whatever it is to run, and tries again after so many seconds."""

    async def broken(*given: Any) -> Any:
        raise LookupError("the engine itself")

    patched.setattr(worker, "REDELIVERY_DELAYS_S", delays)
    patched.setattr(NodeRunner, "run", broken)


def what_is_not_json_fails_its_node_once(ran: Ran, bad: float) -> None:
    calls: list[str] = []

    @node("t.bad")
    async def gives() -> dict[str, Any]:
        calls.append("a")
        return {"x": [bad]}

    found = kind_of(gives)
    assert found is not None
    document = workflow("start>a a>b", a=kind("t.bad"), b=sets(x=1))
    failed = entry(ran(document, registry=standard_registry().extended([found])), "a")
    assert (failed["status"], failed["attempts"], calls) == ("failed", 1, ["a"])
    assert failed["error"]["code"] == "NOT_JSON"


def an_error_in_an_expression_is_its_node_s(opened: Opened, reads: Fields) -> None:
    """Of a node that reads DEEP, by an engine that goes on with the next."""
    document = workflow("start>a a>b", a=reads, b=sets(x=1))

    async def go() -> list[str]:
        async with opened() as engine:
            return [
                (await engine.run(document, given))["status"]
                for given in ({}, {"a": 1}, {"a": {"b": {"c": 1}}})
            ]

    assert asyncio.run(go()) == ["halted", "halted", "completed"]


def a_stop_fails_no_node(opened: Opened) -> None:
    calls: list[str] = []
    document = workflow("start>a a>b", a=kind("t.gate"), b=kind("t.gate"))

    async def go() -> str:
        gate = asyncio.Event()
        registry = gated(calls, lambda: gate)
        async with opened(registry=registry) as engine:
            run = await engine.start(document)
            await engine.wait_for(lambda: calls == ["a@/"], 60)
            asyncio.get_running_loop().call_later(0.05, gate.set)
        async with opened(registry=registry) as engine:
            return (await engine.until(await engine.engine.wait_for(run.id))).status

    assert asyncio.run(go()) == "completed"
    assert calls == ["a@/", "b@/"]
