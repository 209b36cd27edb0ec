"""Inline messages: a work message contains everything that its node needs."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from tests.integration.cluster.external_messages import (
    CHAIN,
    CHAIN_INPUT,
    TRIGGER,
    edge,
    edit,
    message,
    new_id,
    with_client,
)
from tests.support.amqp_client import Client
from tests.support.clusters import Cluster, clusters

pytestmark = clusters("rabbitmq-inline")

TIMEOUT_S = 60.0


async def messages_by_node(client: Client, execution: str) -> dict[str, list[dict[str, Any]]]:
    """Wait for the end of an execution and return its work messages by node and item."""
    await client.wait_for_completion(execution)
    found: dict[str, list[dict[str, Any]]] = {}
    for each in client.work_messages(execution):
        items = ",".join(str(frame["item_index"]) for frame in each.get("lineage_stack", []))
        found.setdefault(f"{each['current_node']}@{items}", []).append(each)
    return found


def test_message_contains_definition_and_visible_context(cluster: Cluster) -> None:
    async def exchange(client: Client) -> None:
        await client.copy_work()
        execution = new_id()
        await client.publish(message(execution, "first", CHAIN, {"$trigger": CHAIN_INPUT}))
        async with asyncio.timeout(TIMEOUT_S):
            while not any(each["current_node"] == "last" for each in client.work_messages(execution)):
                await client.wait_for_message()
        by_node = await messages_by_node(client, execution)
        ours = {name: next(each for each in sent if "token" in each) for name, sent in by_node.items()}
        for content in ours.values():
            ids = [node["id"] for node in content["workflow_definition"]["nodes"]]
            assert ids == [node["id"] for node in CHAIN["nodes"]]
            assert "definition_ref" not in content
        contexts = {name: content["accumulated_context"] for name, content in ours.items()}
        before = {"$trigger": CHAIN_INPUT, "$first": {"n": 2}}
        assert contexts == {
            "first@": {"$trigger": CHAIN_INPUT},
            "each@": before,
            "double@0": {**before, "$item": 10, "$index": 0},
            "double@1": {**before, "$item": 20, "$index": 1},
            "all@": before,
            "last@": {**before, "$all": [{"n": 20}, {"n": 40}]},
        }

    with_client(cluster.settings.queue, exchange)


def test_copied_message_starts_execution_from_its_node(cluster: Cluster) -> None:

    async def exchange(client: Client) -> None:
        await client.copy_work()
        execution, other = new_id(), new_id()
        await client.publish(message(execution, "first", CHAIN, {"$trigger": CHAIN_INPUT}))
        whole = await client.wait_for_completion(execution)
        async with asyncio.timeout(TIMEOUT_S):
            while not any(each["current_node"] == "last" for each in client.work_messages(execution)):
                await client.wait_for_message()
        copied = next(each for each in client.work_messages(execution) if each["current_node"] == "last")
        del copied["token"]
        await client.publish({**copied, "execution_id": other})
        again = await client.wait_for_completion(other)
        assert again["status"] == "completed"
        assert again["final_context"] == whole["final_context"]
        assert again["final_context"]["$last"] == {"n": 42}

    with_client(cluster.settings.queue, exchange)


def _log(id: str, value: str) -> dict[str, Any]:
    return {"id": id, "type": "log", "parameters": {"message": value}}


def _rescued(id: str, type: str, **parameters: Any) -> dict[str, Any]:
    return {"id": id, "type": type, "parameters": parameters, "error": {"type": "branch", "error_edge": id}}


JOINS = {
    "nodes": [
        TRIGGER,
        edit("a", 1),
        edit("b", 2),
        {"id": "choice", "type": "conditional", "parameters": {"expression": "{{ true }}"}},
        _log("chosen", "{{ $json }}"),
        _rescued("wrong", "fail", message="no luck"),
        _log("handled", "{{ [$json, $error.code] }}"),
        _rescued("each", "split", input_array="{{ 1 }}"),
        {"id": "item", "type": "noop"},
        {"id": "list", "type": "aggregator"},
        _log("unsplit", "{{ [$json, $error.code] }}"),
        {"id": "append", "type": "merge", "parameters": {"wait_mode": "wait_for_all"}},
        _log("all", "{{ [$json, $error.code] }}"),
    ],
    "edges": [
        edge("trigger", "a"),
        edge("trigger", "b"),
        edge("b", "choice"),
        edge("a", "choice"),
        edge("choice", "chosen", label="true"),
        edge("a", "wrong"),
        {"id": "wrong", "src": "wrong", "dst": "handled", "is_error": True},
        edge("a", "each"),
        edge("each", "item"),
        edge("item", "list"),
        {"id": "each", "src": "each", "dst": "unsplit", "is_error": True},
        edge("handled", "append"),
        edge("chosen", "append"),
        edge("b", "append"),
        edge("unsplit", "all"),
        edge("choice", "all", label="false"),
        edge("append", "all"),
    ],
}


def test_every_copied_message_starts_its_node_with_the_same_payload_and_error(cluster: Cluster) -> None:
    """Behind joins, chosen and unchosen branches, error edges of nodes and splits; joins with their arrivals."""

    async def exchange(client: Client) -> None:
        await client.copy_work()
        execution = new_id()
        await client.publish(message(execution, "a", JOINS, {"$trigger": {"v": 1}}))
        whole = (await client.wait_for_completion(execution))["final_context"]
        async with asyncio.timeout(TIMEOUT_S):
            while not any(each["current_node"] == "all" for each in client.work_messages(execution)):
                await client.wait_for_message()
        copied = {each["current_node"]: each for each in client.work_messages(execution) if "token" in each}
        assert copied.keys() == {each["id"] for each in JOINS["nodes"]} - {"trigger", "item", "list"}
        started = {}
        for node, sent in copied.items():
            started[node] = new_id()
            again = {name: value for name, value in sent.items() if name != "token"}
            await client.publish({**again, "execution_id": started[node]})
        for node, other in started.items():
            found = (await client.wait_for_completion(other))["final_context"]
            assert found.get(f"${node}") == whole.get(f"${node}"), node

    with_client(cluster.settings.queue, exchange)


THRICE = "{{ $trigger.text }}{{ $trigger.text }}{{ $trigger.text }}"


@pytest.mark.parametrize(
    ("nodes", "ran"),
    [
        ([edit("small", 1), edit("large", THRICE), edit("never", 1)], {"$small", "$large"}),
        ([edit("small", 1), {**edit("other", 2), "name": "n" * 350_000}], set()),
    ],
    ids=["outputs", "definition"],
)
def test_oversized_message_fails_execution(cluster: Cluster, nodes: list[Any], ran: set[str]) -> None:
    ids = [TRIGGER["id"], *(each["id"] for each in nodes)]
    edges = [edge(one, two) for one, two in pairwise(ids)]

    async def exchange(client: Client) -> None:
        execution = new_id()
        definition = {"nodes": [TRIGGER, *nodes], "edges": edges}
        await client.publish(
            message(execution, nodes[0]["id"], definition, {"$trigger": {"text": "x" * 100_000}})
        )
        ended = await client.wait_for_completion(execution)
        assert (ended["status"], ended["error"]["code"]) == ("failed", "MESSAGE_TOO_LARGE")
        assert "at most 300,000" in ended["error"]["message"]
        assert set(ended["final_context"]) == {"$trigger", *ran}

    with_client(cluster.settings.queue, exchange)


def test_outputs_in_statuses_and_completion_are_whole(cluster: Cluster) -> None:
    """As far as they fit: `longer` has 300,000 characters, more than a message may have here."""
    nodes = [edit("long", "{{ $trigger.text }}"), edit("longer", THRICE)]
    definition = {"nodes": [TRIGGER, *nodes], "edges": [edge("trigger", "long"), edge("trigger", "longer")]}
    text = "x" * 100_000

    async def exchange(client: Client) -> None:
        execution = new_id()
        await client.publish(message(execution, "trigger", definition, {"$trigger": {"text": text}}))
        ended = await client.wait_for_completion(execution, statuses=3)
        outputs = {
            each["node_id"]: each["output"]
            for each in client.statuses(execution)
            if each["status"] == "success"
        }
        for found in (outputs["long"], ended["final_context"]["$long"]):
            assert found == {"n": text}
        for found in (outputs["longer"], ended["final_context"]["$longer"]):
            assert found["$ref"].endswith("longer@/")
            assert found["bytes"] > 300_000
        assert ended["final_context"]["$trigger"] == {"text": text}

    with_client(cluster.settings.queue, exchange)
