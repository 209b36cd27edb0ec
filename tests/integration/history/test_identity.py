"""Generated identifiers: the same in every attempt of a node run, and different everywhere else."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any

from msgspec import json

from rune.nodes.custom import NodeContext, kind_of, node
from rune.nodes.registry import Registry, standard_registry
from rune.runtime.queries.history import read_history
from rune.runtime.services.executions import ExecutionService
from rune.testing.harness import Harness
from tests.support.backends import Backend, backends
from tests.support.workflows import Fields, edit, of_type, workflow
from tests.support.written import as_written

pytestmark = backends("embedded", "redis", "redis-travelling", "rabbitmq")

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

NEW = "{{ uuid() }}"
CHILD = {
    **workflow("start>made made>out", made=edit(id=NEW), out=of_type("output", value="$made")),
    "id": "maker",
}
PARENT = workflow(
    "start>two two>pure pure>list list>child child>each each>item item>all all>flaky",
    two=edit(a=NEW, b="{{ uuid() }} {{ uuid() }}", c="{{ [uuid() for x in range(3)] }}"),
    pure=edit(a=NEW),
    list=of_type("edit", **{"from": [{}, {}], "assignments": [{"name": "id", "value": NEW}]}),
    child=of_type("workflow", workflow="maker"),
    each=of_type("split", input_array="{{ [1, 2, 3] }}"),
    item=edit(id=NEW),
    all=of_type("aggregator"),
    flaky={
        **of_type("identity.flaky", id=NEW),
        "retry": {"max_attempts": 3, "initial_delay": 0.001, "jitter": False},
    },
)

attempts: list[tuple[str, str]] = []


@node("identity.flaky")
async def flaky(ctx: NodeContext, id: str) -> dict[str, Any]:
    """Fail in the first two attempts."""
    attempts.append((ctx.idempotency_key.split(":")[0], id))
    if ctx.attempt < 3:
        raise ValueError("failed on purpose")
    return {"id": id}


def registry() -> Registry:
    kind = kind_of(flaky)
    assert kind is not None
    return standard_registry().extended([kind])


def identifiers(document: Fields) -> list[str]:
    """Return the identifiers that the nodes of an execution made, each as often as it was made."""
    made = [
        each["output"]
        for each in document["nodes"]
        if each["node_id"] in ("two", "pure", "list", "made", "item")
    ]
    return UUID.findall(json.encode(made).decode())


async def document_of(engine: Harness, execution: str) -> Fields:
    await asyncio.wait_for(await engine.engine.wait_for(execution), 60)
    backend = engine.engine.backend
    accepted = await backend.journal.accepted(execution)
    assert accepted is not None
    plan = await engine.engine.plans.plan(accepted.hash)
    return as_written(await (await read_history(backend.journal, backend.blob, accepted, plan)).document())


async def start_twice(engine: Harness) -> list[Fields]:
    """Return two executions of the parent that ran side by side, and a rerun from its first node."""
    services = engine.engine.services
    await services.workflows.deploy(json.encode(CHILD))
    executions: ExecutionService = services.executions
    started = await asyncio.gather(
        *(executions.start_definition(json.encode(PARENT), b"{}") for _ in range(2))
    )
    documents = [await document_of(engine, each.id) for each in started]
    again = await executions.rerun(started[0].id, "two")
    documents.append(await document_of(engine, again.id))
    return documents


def test_identifiers_differ_between_executions_nodes_items_and_places(backend: Backend) -> None:
    attempts.clear()

    async def go() -> list[Fields]:
        async with backend.open(registry=registry()) as engine:
            return await start_twice(engine)

    documents = asyncio.run(go())
    made: list[str] = []
    for each in documents:
        assert each["status"] == "completed", each
        child = [entry["output"]["id"] for entry in each["nodes"] if entry["node_id"] == "child"]
        assert len(child) == 1
        made += child + identifiers(each)
    # In each: 1 of the child, 6 of `two`, 1 of `pure`, 2 of `list`, 3 of the items.
    assert len(made) == 3 * 13
    repeated = {id: count for id, count in Counter(made).items() if count > 1}
    assert not repeated, repeated


def test_identifier_is_the_same_in_every_attempt(backend: Backend) -> None:
    attempts.clear()
    document = {
        **PARENT,
        "nodes": [PARENT["nodes"][0], PARENT["nodes"][-1]],
        "edges": [{"src": "start", "dst": "flaky"}],
    }

    async def go() -> list[Fields]:
        async with backend.open(registry=registry()) as engine:
            executions = engine.engine.services.executions
            started = [await executions.start_definition(json.encode(document), b"{}") for _ in range(2)]
            return [await document_of(engine, each.id) for each in started]

    documents = asyncio.run(go())
    sent = {
        each["execution_id"]: {id for execution, id in attempts if execution == each["execution_id"]}
        for each in documents
    }
    assert len(attempts) == 6
    assert all(len(ids) == 1 for ids in sent.values()), sent
    assert len(set.union(*sent.values())) == 2
