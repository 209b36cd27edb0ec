"""Blobs are readable by parent and child executions and by retries."""

from __future__ import annotations

import asyncio
import json
import pathlib
from itertools import pairwise
from typing import Any

from rune.bootstrap import running_engine
from rune.nodes.custom import NodeContext, kind_of, node
from rune.nodes.registry import Registry, standard_registry
from rune.ports.retention import Rule
from rune.runtime.engine import Engine
from rune.runtime.queries.history import read_history
from rune.settings import Settings

Raw = dict[str, Any]
calls: list[str] = []


@node("test.write")
async def write(ctx: NodeContext, text: str) -> dict[str, Any]:
    return await ctx.blob.put(text.encode(), "note.txt", "text/plain")


@node("test.read")
async def read(ctx: NodeContext, file: dict[str, Any]) -> str:
    calls.append(ctx.node)
    if len(calls) == 1 and ctx.node == "flaky":
        raise RuntimeError("not this time")
    return (await ctx.blob.get(file)).decode()


def _registry() -> Registry:
    kinds = [kind_of(write), kind_of(read)]
    return standard_registry().extended(kind for kind in kinds if kind is not None)


def _document(id: str, nodes: list[Raw]) -> bytes:
    ids = [each["id"] for each in nodes]
    edges = [{"src": src, "dst": dst} for src, dst in pairwise(ids)]
    return json.dumps({"id": id, "nodes": nodes, "edges": edges}).encode()


START = {"id": "start", "type": "manual"}


async def _output(engine: Engine, execution: str) -> Any:
    end = await asyncio.wait_for(await engine.wait_for(execution), 20)
    assert end.status == "completed", end
    accepted = await engine.backend.journal.accepted(execution)
    assert accepted is not None
    plan = await engine.plans.plan(accepted.hash)
    return await (await read_history(engine.backend.journal, engine.backend.blob, accepted, plan)).output()


def test_blobs_pass_between_parent_and_child(tmp_path: pathlib.Path) -> None:
    asyncio.run(_child_and_back(tmp_path))


async def _child_and_back(folder: pathlib.Path) -> None:
    child = _document(
        "child",
        [
            START,
            {"id": "look", "type": "test.read", "parameters": {"file": "{{ $trigger.file }}"}},
            {"id": "answer", "type": "test.write", "parameters": {"text": "{{ $look }}, read"}},
            {"id": "out", "type": "output", "parameters": {"value": {"files": ["{{ $answer }}"]}}},
        ],
    )
    parent = _document(
        "parent",
        [
            START,
            {"id": "made", "type": "test.write", "parameters": {"text": "a note"}},
            {
                "id": "call",
                "type": "workflow",
                "parameters": {"workflow": "child", "input": {"file": "{{ $made }}"}},
            },
            {"id": "look", "type": "test.read", "parameters": {"file": "{{ $call.files[0] }}"}},
            {"id": "out", "type": "output", "parameters": {"value": "{{ $look }}"}},
        ],
    )
    async with running_engine(Settings(home=str(folder)), registry=_registry()) as engine:
        await engine.services.workflows.deploy(child)
        started = await engine.services.executions.start_definition(parent, b"{}")

        assert await _output(engine, started.id) == "a note, read"


def test_retry_reads_and_retains_blobs_of_original(tmp_path: pathlib.Path) -> None:
    asyncio.run(_retry(tmp_path))


async def _retry(folder: pathlib.Path) -> None:
    calls.clear()
    document = _document(
        "again",
        [
            START,
            {"id": "made", "type": "test.write", "parameters": {"text": "a note"}},
            {"id": "flaky", "type": "test.read", "parameters": {"file": "{{ $made }}"}},
            {"id": "out", "type": "output", "parameters": {"value": "{{ $flaky }}"}},
        ],
    )
    async with running_engine(Settings(home=str(folder)), registry=_registry()) as engine:
        first = await engine.services.executions.start_definition(document, b"{}")
        assert (await asyncio.wait_for(await engine.wait_for(first.id), 20)).status == "halted"
        second = await engine.services.executions.retry(first.id)

        assert await _output(engine, second.id) == "a note"
        await engine.services.executions.delete_ended((Rule(status=("halted",), keep=0),))
        assert await engine.backend.journal.accepted(first.id) is not None, "its blobs are still needed"
