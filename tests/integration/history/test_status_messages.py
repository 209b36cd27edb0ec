"""Status messages of runs that the end of an execution cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

from rune.testing.harness import Harness, Run
from tests.support.amqp_client import Client, check_schema, open_client
from tests.support.backends import Backend, backends, until_suspended
from tests.support.gated_nodes import close_gates, gated_registry
from tests.support.waiting import until
from tests.support.workflows import edit, fail, of_type, split, wait, wait_for_signal, workflow


async def cancelled_status(client: Client, engine: Harness, run: Run, node: str) -> dict[str, Any]:
    """Cancel an execution and return the status that tells that a node is cancelled."""
    await engine.engine.services.executions.cancel(run.id, "no longer needed")

    def arrived() -> bool:
        return (node, "cancelled") in client.steps(run.id)

    await until(arrived, "the status is published", 60.0)
    found = next(each for each in client.statuses(run.id) if each["status"] == "cancelled")
    check_schema("node-status-message", found)
    return found


@backends("rabbitmq")
def test_run_that_waited_is_published_as_cancelled(backend: Backend) -> None:
    async def go() -> dict[str, Any]:
        async with backend.open() as engine, open_client(backend.settings.queue) as client:
            run = await engine.start(workflow("start>w", w=wait_for_signal()))
            await until_suspended(run)
            return await cancelled_status(client, engine, run, "w")

    message = asyncio.run(go())
    assert (message["node_id"], message["attempt"]) == ("w", 1)
    assert "no longer needed" in message["metadata"]["reason"]


@backends("rabbitmq")
def test_run_that_a_worker_executed_is_published_as_cancelled(backend: Backend) -> None:
    close_gates()

    async def go() -> tuple[dict[str, Any], list[dict[str, Any]]]:
        async with (
            backend.open(registry=gated_registry()) as engine,
            open_client(backend.settings.queue) as client,
        ):
            run = await engine.start(workflow("start>w", w=of_type("gated.wait", name="g")))
            await until(lambda: ("w", "running") in client.steps(run.id), "the node runs", 60.0)
            return await cancelled_status(client, engine, run, "w"), client.statuses(run.id)

    message, statuses = asyncio.run(go())
    running = next(each for each in statuses if each["status"] == "running")
    assert running["metadata"]["worker"]
    assert message["executed_at"] >= running["executed_at"]
    assert "no longer needed" in message["metadata"]["reason"]


@backends("rabbitmq")
def test_completion_message_counts_failed_items_and_names_node_of_error(backend: Backend) -> None:
    collected = workflow("start>s s>f f>g", s=split(), f=fail(), g=of_type("aggregator"))
    halted = workflow("start>stop", stop=fail("STOP"))
    in_item = workflow("start>s s>f", s=split(), f={**fail("STOP"), "error": {"type": "halt"}})

    async def go() -> list[dict[str, Any]]:
        async with backend.open() as engine, open_client(backend.settings.queue) as client:
            runs = [
                await engine.start(collected, {"items": [1, 2, 3]}),
                await engine.start(halted),
                await engine.start(in_item, {"items": [7]}),
            ]
            return [await client.wait_for_completion(run.id) for run in runs]

    counted, named, of_item = asyncio.run(go())
    [frame] = of_item["error"]["lineage"]
    assert frame == {
        "split_node_id": "s",
        "item_index": 0,
        "branch_id": f"{of_item['execution_id']}_s_0",
        "total_items": 1,
    }
    assert (counted["status"], counted["failed_items"]) == ("completed", 3)
    assert (named["status"], named["failed_items"]) == ("halted", 0)
    assert (named["error"]["code"], named["error"]["node_id"]) == ("STOP", "stop")


@backends("rabbitmq", "rabbitmq-travelling")
def test_wait_has_one_running_and_the_duration_of_the_api(backend: Backend) -> None:
    async def go() -> tuple[list[dict[str, Any]], dict[str, int]]:
        async with backend.open() as engine, open_client(backend.settings.queue) as client:
            run = await engine.start(
                workflow("start>w w>s s>e", w=wait(1, "seconds"), s=wait_for_signal(), e=edit(n=1))
            )
            await until_suspended(run, 2)
            await engine.engine.services.executions.signal(run.id, "go")
            await client.wait_for_completion(run.id)
            await until(lambda: ("e", "success") in client.steps(run.id), "all statuses arrived", 60.0)
            document = await run.document()
            durations = {each["node_id"]: each["duration_ms"] for each in document["nodes"]}
            return client.statuses(run.id), durations

    statuses, durations = asyncio.run(go())
    for node in ("w", "s"):
        assert [each["status"] for each in statuses if each["node_id"] == node] == [
            "running",
            "waiting",
            "success",
        ]
    ends = {each["node_id"]: each["duration_ms"] for each in statuses if each["status"] == "success"}
    assert ends["w"] >= 1_000
    assert {node: ends[node] for node in ("w", "s")} == {node: durations[node] for node in ("w", "s")}
