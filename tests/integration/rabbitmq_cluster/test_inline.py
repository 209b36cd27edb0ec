"""Messages in full: a plain reader gets everything that a node needs from its message alone."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from tests.integration.cluster.standing import Standing
from tests.integration.rabbitmq_cluster.plain import Client
from tests.integration.rabbitmq_cluster.test_by_hand import TRIGGER, edge, keep, message, new_id, talk

PATIENCE = 60.0
CHAIN = {
    "nodes": [
        TRIGGER,
        keep("first", "{{ $trigger.n + 1 }}"),
        {"id": "each", "type": "split", "parameters": {"input_array": "{{ $trigger.list }}"}},
        keep("double", "{{ $item * 2 }}"),
        {"id": "all", "type": "aggregator"},
        keep("last", "{{ $first.n + $all[1].n }}"),
    ],
    "edges": [
        edge("trigger", "first"),
        edge("first", "each"),
        edge("each", "double"),
        edge("double", "all"),
        edge("all", "last"),
    ],
}
START = {"n": 1, "list": [10, 20]}


async def heard(plain: Client, execution: str) -> dict[str, list[dict[str, Any]]]:
    """The messages of an execution that has ended, by node and item."""
    await plain.completion(execution)
    found: dict[str, list[dict[str, Any]]] = {}
    for each in plain.overheard(execution):
        items = ",".join(str(frame["item_index"]) for frame in each.get("lineage_stack", []))
        found.setdefault(f"{each['current_node']}@{items}", []).append(each)
    return found


def test_a_message_has_the_definition_and_what_its_node_may_see(inline: Standing) -> None:
    async def speak(plain: Client) -> None:
        await plain.overhear()
        execution = new_id()
        await plain.publish(message(execution, "first", CHAIN, {"$trigger": START}))
        async with asyncio.timeout(PATIENCE):
            while not any(each["current_node"] == "last" for each in plain.overheard(execution)):
                await plain.came()
        by_node = await heard(plain, execution)
        ours = {name: next(each for each in told if "token" in each) for name, told in by_node.items()}
        for told in ours.values():
            ids = [node["id"] for node in told["workflow_definition"]["nodes"]]
            assert ids == [node["id"] for node in CHAIN["nodes"]]
            assert "definition_ref" not in told
        contexts = {name: told["accumulated_context"] for name, told in ours.items()}
        before = {"$trigger": START, "$first": {"n": 2}}
        assert contexts == {
            "first@": {"$trigger": START},
            "each@": before,
            "double@0": {**before, "$item": 10, "$index": 0},
            "double@1": {**before, "$item": 20, "$index": 1},
            "all@": before,
            "last@": {**before, "$all": [{"n": 20}, {"n": 40}]},
        }

    talk(inline.settings.queue, speak)


def test_what_was_read_is_enough_to_go_on_from_there(inline: Standing) -> None:
    """A reader sends the message of the last node again, as a start of its own."""

    async def speak(plain: Client) -> None:
        await plain.overhear()
        execution, mine = new_id(), new_id()
        await plain.publish(message(execution, "first", CHAIN, {"$trigger": START}))
        whole = await plain.completion(execution)
        async with asyncio.timeout(PATIENCE):
            while not any(each["current_node"] == "last" for each in plain.overheard(execution)):
                await plain.came()
        told = next(each for each in plain.overheard(execution) if each["current_node"] == "last")
        del told["token"]
        await plain.publish({**told, "execution_id": mine})
        again = await plain.completion(mine)
        assert again["status"] == "completed"
        assert again["final_context"] == whole["final_context"]
        assert again["final_context"]["$last"] == {"n": 42}

    talk(inline.settings.queue, speak)


THRICE = "{{ $trigger.text }}{{ $trigger.text }}{{ $trigger.text }}"


@pytest.mark.parametrize(
    ("nodes", "ran"),
    [
        ([keep("small", 1), keep("large", THRICE), keep("never", 1)], {"$small", "$large"}),
        ([keep("small", 1), {**keep("other", 2), "name": "n" * 350_000}], set()),
    ],
    ids=["outputs", "definition"],
)
def test_what_would_be_too_long_ends_its_execution_with_a_code(
    inline: Standing, nodes: list[Any], ran: set[str]
) -> None:
    ids = [TRIGGER["id"], *(each["id"] for each in nodes)]
    edges = [edge(one, two) for one, two in pairwise(ids)]

    async def speak(plain: Client) -> None:
        execution = new_id()
        definition = {"nodes": [TRIGGER, *nodes], "edges": edges}
        await plain.publish(
            message(execution, nodes[0]["id"], definition, {"$trigger": {"text": "x" * 100_000}})
        )
        ended = await plain.completion(execution)
        assert (ended["status"], ended["error"]["code"]) == ("failed", "MESSAGE_TOO_LARGE")
        assert "at most 300,000" in ended["error"]["message"]
        assert set(ended["final_context"]) == {"$trigger", *ran}

    talk(inline.settings.queue, speak)
