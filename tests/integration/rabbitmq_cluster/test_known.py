"""Messages of a plain client about executions that are known already, and lineages as they are told."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.rabbitmq_cluster.plain import Client
from tests.integration.rabbitmq_cluster.test_by_hand import FRAME, MIDDLE, SPLIT, START, message, new_id, talk

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
def test_a_message_about_what_runs_already_is_not_needed(
    amqp: str, first: str, definition: Any, node: str, context: Any, more: dict[str, Any]
) -> None:
    async def speak(plain: Client) -> None:
        execution, after = new_id(), new_id()
        start = ITEMS if definition is SPLIT else START
        await plain.publish(message(execution, first, definition, start))
        await plain.completion(execution)
        await plain.publish(message(execution, node, definition, context, **more))
        await plain.publish(message(after, "a", {"nodes": [], "edges": []}, START))
        assert (await plain.dead_letter(after))[0] == "INVALID"
        assert await plain.letters(execution) == []
        assert len(plain.completions(execution)) == 1

    talk(amqp, speak)


def test_who_brings_no_definition_starts_nothing(amqp: str) -> None:
    async def speak(plain: Client) -> None:
        execution, unknown = new_id(), new_id()
        await plain.overhear()
        await plain.publish(message(execution, "a", MIDDLE, START))
        await plain.completion(execution)
        sent = next(each for each in plain.overheard(execution) if "definition_ref" in each)
        told = message(unknown, "a", None, START, definition_ref=sent["definition_ref"])
        del told["workflow_definition"]
        await plain.publish(told)
        assert (await plain.dead_letter(unknown))[0] == "UNKNOWN_EXECUTION"
        assert plain.steps(unknown) == []

    talk(amqp, speak)


def test_statuses_say_of_which_item_they_are(amqp: str) -> None:
    async def speak(plain: Client) -> None:
        execution = new_id()
        await plain.overhear()
        await plain.publish(message(execution, "each", SPLIT, ITEMS))
        done = await plain.completion(execution, statuses=8)
        assert done["final_context"]["$list"] == [{"n": 4}, {"n": 5}]
        told = [each for each in plain.statuses(execution) if each["node_id"] == "work"]
        assert {each["status"] for each in told} == {"running", "success"}
        frames = {each["lineage_stack"][0]["item_index"]: each["lineage_stack"] for each in told}
        for index in (0, 1):
            branch = f"{execution}_each_{index}"
            (frame,) = frames[index]
            assert (frame["split_node_id"], frame["branch_id"]) == ("each", branch)
            (sent,) = [
                each["lineage_stack"]
                for each in plain.overheard(execution)
                if each["current_node"] == "work" and each["lineage_stack"][0]["item_index"] == index
            ]
            assert sent == [{"split_node_id": "each", "item_index": index, "branch_id": branch}]
        ended = [each["lineage_stack"][0] for each in told if each["status"] == "success"]
        assert {each.get("total_items", 2) for each in ended} == {2}

    talk(amqp, speak)


@pytest.mark.parametrize("node", ["trigger", "a"])
def test_whoever_names_the_trigger_or_what_is_behind_it_starts_everything(amqp: str, node: str) -> None:
    async def speak(plain: Client) -> None:
        execution = new_id()
        await plain.overhear()
        await plain.publish(
            message(execution, node, MIDDLE, START, priority=9), queue="workflow.execution.low"
        )
        done = await plain.completion(execution)
        assert (done["status"], done["final_context"]["$all"]) == ("completed", [{"n": 3}, {"n": 0}])
        sent = [each for each in plain.overheard(execution) if "token" in each]
        assert {each["current_node"] for each in sent} == {"a", "b", "c", "side", "all", "first"}
        assert {each["priority"] for each in sent} == {9}

    talk(amqp, speak)
