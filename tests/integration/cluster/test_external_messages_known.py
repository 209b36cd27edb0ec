"""Messages of an external AMQP client for executions that exist already, and lineages in statuses."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.integration.cluster.external_messages import (
    FRAME,
    MIDDLE,
    SPLIT,
    START,
    TRIGGER,
    edge,
    edit,
    message,
    new_id,
    with_client,
)
from tests.support.amqp_client import Client
from tests.support.clusters import clusters

pytestmark = clusters("rabbitmq-travelling")

ITEMS = {"$trigger": {"items": [4, 5]}}


@pytest.mark.parametrize(
    ("first", "definition", "node", "context", "more"),
    [
        ("each", SPLIT, "work", ITEMS, {"lineage_stack": [FRAME], "from_node": "each"}),
        ("each", SPLIT, "list", {**ITEMS, "$each": [4, 5]}, {"from_node": "work"}),
        ("a", MIDDLE, "all", {**START, "$c": {"n": 3}}, {"from_node": "c"}),
        ("a", MIDDLE, "c", {**START, "$b": {"n": 3}}, {"attempt": 2}),
    ],
    ids=["item", "aggregator", "join", "middle"],
)
def test_message_for_existing_execution_is_ignored(
    amqp: str, first: str, definition: Any, node: str, context: Any, more: dict[str, Any]
) -> None:
    async def exchange(client: Client) -> None:
        execution, after = new_id(), new_id()
        start = ITEMS if definition is SPLIT else START
        await client.publish(message(execution, first, definition, start))
        await client.wait_for_completion(execution)
        await client.publish(message(execution, node, definition, context, **more))
        await client.publish(message(after, "a", {"nodes": [], "edges": []}, START))
        assert (await client.take_dead_letter(after))[0] == "INVALID"
        assert await client.dead_letter_codes(execution) == []
        assert len(client.completions(execution)) == 1

    with_client(amqp, exchange)


OTHER = {"nodes": [TRIGGER, edit("a", 2)], "edges": [edge("trigger", "a")]}
FORKED = {
    "nodes": [edit(id, id) for id in ("root", "b", "c")],
    "edges": [edge("root", "b"), edge("root", "c")],
}
LONG = "x" * 70_000
Start = tuple[str, Any, Any]
OTHER_STARTS: dict[str, tuple[Start, Start, str]] = {
    "definition": (("a", MIDDLE, START), ("a", OTHER, START), "DEFINITION_MISMATCH"),
    "payload": (("a", OTHER, START), ("a", OTHER, ITEMS), "INPUT_MISMATCH"),
    "long payload": (
        ("a", OTHER, {"$trigger": {"long": LONG + "1"}}),
        ("a", OTHER, {"$trigger": {"long": LONG + "2"}}),
        "INPUT_MISMATCH",
    ),
    "branch": (
        ("b", FORKED, {**START, "$root": 1}),
        ("c", FORKED, {**START, "$root": 1}),
        "DEFINITION_MISMATCH",
    ),
    "output": (
        ("b", FORKED, {**START, "$root": 1}),
        ("b", FORKED, {**START, "$root": 2}),
        "INPUT_MISMATCH",
    ),
    "long output": (
        ("b", FORKED, {**START, "$root": LONG + "1"}),
        ("b", FORKED, {**START, "$root": LONG + "2"}),
        "INPUT_MISMATCH",
    ),
}


@pytest.mark.parametrize("together", [True, False], ids=["together", "later"])
@pytest.mark.parametrize("kind", OTHER_STARTS)
def test_of_two_different_starts_with_one_id_one_runs_and_one_is_a_dead_letter(
    amqp: str, kind: str, together: bool
) -> None:
    """Published together, both are handled before either is recorded."""
    first, second, code = OTHER_STARTS[kind]

    async def exchange(client: Client) -> None:
        executions = [new_id() for _ in range(6 if together else 1)]
        for execution in executions:
            one, other = message(execution, *first), message(execution, *second)
            if together:
                await asyncio.gather(client.publish(one), client.publish(other))
            else:
                await client.publish(one)
                await client.wait_for_completion(execution)
                await client.publish(other)
        for execution, (letter, body) in (await client.take_dead_letters(executions)).items():
            assert letter == code
            done = await client.wait_for_completion(execution)
            dead = json.loads(body)["accumulated_context"]
            ran = {name: done["final_context"].get(name) for name in dead}
            same_place = first[:2] == second[:2]
            assert (ran != dead) if same_place else done["status"] == "completed"
            assert len(client.completions(execution)) == 1

    with_client(amqp, exchange)


@pytest.mark.parametrize("kind", OTHER_STARTS)
def test_of_two_equal_starts_with_one_id_the_second_is_ignored(amqp: str, kind: str) -> None:
    start, _, _ = OTHER_STARTS[kind]

    async def exchange(client: Client) -> None:
        execution, last = new_id(), new_id()
        await asyncio.gather(*(client.publish(message(execution, *start)) for _ in range(4)))
        await client.wait_for_completion(execution)
        await client.publish(message(execution, *start))
        await client.publish(message(last, "a", {"nodes": [], "edges": []}, START))
        assert (await client.take_dead_letter(last))[0] == "INVALID"
        assert await client.dead_letter_codes(execution) == []
        assert len(client.completions(execution)) == 1

    with_client(amqp, exchange)


def test_message_without_definition_starts_nothing(amqp: str) -> None:
    async def exchange(client: Client) -> None:
        execution, unknown = new_id(), new_id()
        await client.copy_work()
        await client.publish(message(execution, "a", MIDDLE, START))
        await client.wait_for_completion(execution)
        sent = next(each for each in client.work_messages(execution) if "definition_ref" in each)
        unsolicited = message(unknown, "a", None, START, definition_ref=sent["definition_ref"])
        del unsolicited["workflow_definition"]
        await client.publish(unsolicited)
        assert (await client.take_dead_letter(unknown))[0] == "UNKNOWN_EXECUTION"
        assert client.steps(unknown) == []

    with_client(amqp, exchange)


def test_statuses_contain_lineage_of_item(amqp: str) -> None:
    async def exchange(client: Client) -> None:
        execution = new_id()
        await client.copy_work()
        await client.publish(message(execution, "each", SPLIT, ITEMS))
        done = await client.wait_for_completion(execution, statuses=8)
        assert done["final_context"]["$list"] == [{"n": 4}, {"n": 5}]
        statuses = [each for each in client.statuses(execution) if each["node_id"] == "work"]
        assert {each["status"] for each in statuses} == {"running", "success"}
        frames = {each["lineage_stack"][0]["item_index"]: each["lineage_stack"] for each in statuses}
        for index in (0, 1):
            branch = f"{execution}_each_{index}"
            (frame,) = frames[index]
            assert (frame["split_node_id"], frame["branch_id"]) == ("each", branch)
            (sent,) = [
                (each["from_node"], each["lineage_stack"])
                for each in client.work_messages(execution)
                if each["current_node"] == "work" and each["lineage_stack"][0]["item_index"] == index
            ]
            frame = {"split_node_id": "each", "item_index": index, "branch_id": branch, "total_items": 2}
            assert sent == ("each", [frame])
        assert {each["lineage_stack"][0]["total_items"] for each in statuses} == {2}

    with_client(amqp, exchange)


@pytest.mark.parametrize("node", ["trigger", "a"])
def test_message_for_trigger_or_first_node_starts_whole_workflow(amqp: str, node: str) -> None:
    async def exchange(client: Client) -> None:
        execution = new_id()
        await client.copy_work()
        await client.publish(
            message(execution, node, MIDDLE, START, priority=9), queue="workflow.execution.low"
        )
        done = await client.wait_for_completion(execution)
        assert (done["status"], done["final_context"]["$all"]) == ("completed", [{"n": 3}, {"n": 0}])
        sent = [each for each in client.work_messages(execution) if "token" in each]
        assert {each["current_node"] for each in sent} == {"a", "b", "c", "side", "all", "first"}
        assert {each["priority"] for each in sent} == {9}

    with_client(amqp, exchange)


def test_messages_after_start_in_the_middle_name_senders_and_arrivals(amqp: str) -> None:
    async def exchange(client: Client) -> None:
        execution = new_id()
        await client.copy_work()
        given = {**START, "$a": {"n": 1}, "$b": {"n": 2}, "$side": {"n": 0}}
        await client.publish(message(execution, "c", MIDDLE, given, from_node="b"))
        done = await client.wait_for_completion(execution)
        assert done["final_context"]["$c"] == {"n": 3}
        sent = {each["current_node"]: each for each in client.work_messages(execution) if "token" in each}
        assert {name: each["from_node"] for name, each in sent.items()} == {
            "c": "b",
            "all": "c",
            "first": "c",
        }
        assert sent["all"]["arrived"] == ["c"]

    with_client(amqp, exchange)


def test_total_items_of_executions_from_outside_are_counted_not_copied(amqp: str) -> None:
    async def exchange(client: Client) -> None:
        execution = new_id()
        await client.copy_work()
        await client.publish(message(execution, "each", SPLIT, {"$trigger": {"items": [4, 5, 6]}}))
        await client.wait_for_completion(execution)
        # The execution is known, so that a frame with another number changes nothing.
        claimed = {**FRAME, "total_items": 9}
        await client.publish(
            message(execution, "work", SPLIT, ITEMS, lineage_stack=[claimed], from_node="each")
        )
        await client.publish(message(last := new_id(), "a", {"nodes": [], "edges": []}, START))
        await client.take_dead_letter(last)
        frames = [
            frame
            for each in client.work_messages(execution)
            if "token" in each
            for frame in each.get("lineage_stack", [])
        ]
        assert sorted((frame["item_index"], frame["total_items"]) for frame in frames) == [
            (0, 3),
            (1, 3),
            (2, 3),
        ]

    with_client(amqp, exchange)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"from_node": 7}, "BAD_MESSAGE"),
        ({"from_node": "nobody"}, "UNKNOWN_NODE"),
        ({"arrived": ["nobody"]}, "UNKNOWN_NODE"),
        ({"arrived": ["work"]}, "UNKNOWN_NODE"),
        ({"lineage_stack": [{**FRAME, "split_node_id": "nobody"}]}, "UNKNOWN_NODE"),
        ({"lineage_stack": [{**FRAME, "total_items": "two"}]}, "BAD_MESSAGE"),
        ({"lineage_stack": [{**FRAME, "total_items": -1}]}, "BAD_MESSAGE"),
        ({"lineage_stack": [{**FRAME, "item_index": 2}]}, "BAD_MESSAGE"),
        ({"lineage_stack": [FRAME]}, "UNKNOWN_SCOPE"),
    ],
    ids=[
        "number",
        "sender",
        "arrival",
        "arrival from elsewhere",
        "split",
        "text",
        "negative",
        "beyond",
        "unknown",
    ],
)
def test_message_with_impossible_sender_or_frame_is_a_dead_letter(
    amqp: str, more: dict[str, Any], code: str
) -> None:
    async def exchange(client: Client) -> None:
        execution = new_id()
        await client.publish(message(execution, "work", SPLIT, ITEMS, **more), checked=False)
        assert (await client.take_dead_letter(execution))[0] == code
        assert client.steps(execution) == []

    with_client(amqp, exchange)
