"""Values that nodes share, as readers of statuses, completions and documents get them.

A node that passes its payload on stores a reference to it, and the payload of a join is composed of those that arrived.
Whatever a value is made of, a message has it whole up to the documented size, and above it a reference that names a
node run with the same output.
"""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise, product
from typing import Any

import pytest

from rune.codec.facts import encode_value
from rune.runtime.queries.reader import ExecutionReader
from tests.integration.cluster.external_messages import edge, message, new_id
from tests.support.amqp_client import Client, open_client
from tests.support.clusters import Cluster, clusters

pytestmark = pytest.mark.long

STATUS_BYTES = 32 * 1024
CONTEXT_BYTES = 64 * 1024
DOCUMENT_BYTES = 64 * 1024
REFERENCE_BYTES = 100
INLINE_BYTES = 300_000 - 16 * 1024
"""Of the outputs in a message of the cluster with self-contained messages."""

SIZES = {"small": 10, "members": 20_000, "medium": 40_000, "large": 100_000}
"""Characters of a text of the start payload. Two of `members` are small each, and larger than a status together."""


def _node(id: str, type: str, **parameters: Any) -> dict[str, Any]:
    return {"id": id, "type": type, "parameters": parameters}


READERS = [
    _node("r_noop", "noop"),
    _node("r_sent", "noop", effectful=True),
    _node("r_log", "log", message="{{ $json }}"),
    _node("r_if", "conditional", expression="{{ true }}"),
    _node("r_last", "log", message="{{ $json }}"),
]
"""Kinds of nodes that store a value which they got, in a row: each passes the payload on."""

LABELS = {"conditional": "true", "switch": "case_0"}


def _leave(node: dict[str, Any], target: str) -> dict[str, Any]:
    label = LABELS.get(node["type"])
    return edge(node["id"], target) if label is None else edge(node["id"], target, label=label)


def _chain(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [_leave(one, two["id"]) for one, two in pairwise(nodes)]


def _behind(first: dict[str, Any], before: list[dict[str, Any]]) -> dict[str, Any]:
    """A join of two branches, or another first node, and behind it readers and an output node."""
    behind = [first, *READERS, _node("out", "output", value="{{ $json }}")]
    return {
        "nodes": [*before, *behind],
        "edges": [*(edge(each["id"], first["id"]) for each in before), *_chain(behind)],
    }


TWO = [_node("a", "noop"), _node("b", "noop")]
FIRST: dict[str, dict[str, Any]] = {
    "noop": _node("c", "noop"),
    "sent": _node("c", "noop", effectful=True),
    "log": _node("c", "log", message="{{ $json }}"),
    "conditional": _node("c", "conditional", expression="{{ true }}"),
    "switch": _node("c", "switch", rules=[{"value": 1, "compare": 1}]),
    "wait": _node("c", "wait", amount=0.01),
    "any": {**_node("c", "noop"), "join": "any"},
    "append": _node("c", "merge", wait_mode="wait_for_all"),
    "object": _node("c", "merge", wait_mode="wait_for_all", mode="object"),
    "combine": _node("c", "merge", wait_mode="wait_for_all", mode="combine"),
    "edit": _node("c", "edit", mode="keep_only", assignments=[{"name": "all", "value": "{{ $json }}"}]),
}
DEFINITIONS = {name: _behind(first, TWO) for name, first in FIRST.items()}
CONDITION = _node("y", "conditional", expression="{{ true }}")
DEFINITIONS["nested"] = {
    "nodes": [*TWO, _node("x", "noop"), CONDITION, *READERS],
    "edges": [
        edge("a", "x"),
        edge("b", "x"),
        edge("a", "y"),
        edge("x", "y"),
        *_chain([CONDITION, *READERS]),
    ],
}
DEFINITIONS["failed"] = {
    "nodes": [
        _node("s", "noop"),
        {**_node("a", "fail", message="no luck"), "error": {"type": "branch", "error_edge": "wrong"}},
        *READERS,
    ],
    "edges": [edge("s", "a"), edge("a", "r_noop", is_error=True) | {"id": "wrong"}, *_chain(READERS)],
}
LIST = _node("list", "aggregator")
DEFINITIONS["items"] = {
    "nodes": [
        _node("each", "split", input_array="{{ [$trigger, $trigger] }}"),
        _node("p", "noop"),
        _node("q", "log", message="{{ $item }}"),
        CONDITION,
        *READERS,
        LIST,
    ],
    "edges": [
        edge("each", "p"),
        edge("each", "q"),
        edge("p", "y"),
        edge("q", "y"),
        *_chain([CONDITION, *READERS, LIST]),
    ],
}


def _lineage(frames: list[dict[str, Any]]) -> str:
    return "/".join(f"{each['split_node_id']}:{each['item_index']}" for each in frames)


def _check(shown: Any, whole: Any, most: int, execution: str, outputs: dict[str, Any]) -> None:
    """Assert that a message has a value whole, or names a run whose output is the same if it is above the size."""
    size = len(encode_value(whole))
    if size <= most:
        assert shown == whole
        return
    assert shown.keys() == {"$ref", "bytes"}
    assert shown["bytes"] == size
    owner, _, run = shown["$ref"].partition("/")
    assert owner == execution
    assert outputs[run] == whole


async def _check_run(
    client: Client, reader: ExecutionReader, execution: str, definition: dict[str, Any], inline: bool
) -> None:
    done = await client.wait_for_completion(execution)
    if inline and done.get("error", {}).get("code") == "MESSAGE_TOO_LARGE":
        return
    assert done["status"] == "completed"
    history = await reader.history(execution)
    document = await history.document()
    start = json.loads(await history.start_payload())
    outputs = {"start": start}
    runs = {}
    for run in document["nodes"]:
        key = (run["node_id"], _lineage(run["lineage"]))
        if run["status"] == "success" and run["output"] is not None:
            runs[key] = outputs[f"{key[0]}@/{key[1]}"] = json.loads(await history.run_output(*key))
            _check(json.loads(encode_value(run["output"])), runs[key], DOCUMENT_BYTES, execution, outputs)
    assert {node for node, _ in runs} >= {
        each["id"] for each in definition["nodes"] if each["type"] not in ("split", "fail")
    }
    async with asyncio.timeout(60):
        while len(shown := _successes(client, execution)) < len(runs):
            await client.wait_for_message()
    for key, output in shown.items():
        if key in runs:
            _check(output, runs[key], INLINE_BYTES if inline else STATUS_BYTES, execution, outputs)
    context = done["final_context"]
    whole = {"$trigger": start} | {f"${node}": value for (node, item), value in runs.items() if not item}
    assert context.keys() - {"$a"} == whole.keys() - {"$a"}
    most = INLINE_BYTES if inline else CONTEXT_BYTES
    assert len(encode_value(context)) <= most + REFERENCE_BYTES * len(context)
    fits = sum(len(encode_value(each)) for each in whole.values()) <= most
    for name, value in whole.items():
        size = len(encode_value(value))
        is_whole = context[name] == value
        assert is_whole or not fits or size > STATUS_BYTES
        _check(context[name], value, size if is_whole else 0, execution, outputs)


def _successes(client: Client, execution: str) -> dict[tuple[str, str], Any]:
    return {
        (each["node_id"], _lineage(each.get("lineage_stack", []))): each["output"]
        for each in client.statuses(execution)
        if each["status"] == "success"
    }


async def _run(cluster: Cluster) -> None:
    async with cluster.connect() as (_, reader), open_client(cluster.settings.queue) as client:
        started = []
        for (name, definition), length in product(DEFINITIONS.items(), SIZES.values()):
            execution = new_id()
            start = {"$trigger": {"text": "\u00e4" + "x" * length}}
            sent = message(execution, definition["nodes"][0]["id"], definition, start)
            # A start payload is stored as it is written, so that its length is that of compact JSON.
            await client.publish(encode_value(sent), checked=False)
            started.append((name, length, execution))
        for name, length, execution in started:
            try:
                await _check_run(client, reader, execution, DEFINITIONS[name], cluster.settings.wire_inline)
            except (AssertionError, KeyError, TimeoutError) as error:
                raise AssertionError(f"{name} with {length} characters") from error


@clusters("rabbitmq-travelling", "rabbitmq-in_place", "rabbitmq-inline")
def test_shared_values_are_whole_or_named(cluster: Cluster) -> None:
    asyncio.run(_run(cluster))
