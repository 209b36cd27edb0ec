"""Messages as an external AMQP client writes them. Nothing of the engine is imported."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from tests.support.amqp_client import Client, open_client

_numbers = count(100_001)


def new_id() -> str:
    return f"exec_20251009_{next(_numbers)}"


def with_client(url: str, exchange: Callable[[Client], Awaitable[None]]) -> None:
    """Run `exchange` with a client that is connected to a broker."""

    async def run() -> None:
        async with open_client(url) as made:
            await exchange(made)

    asyncio.run(run())


def edge(source: str, target: str, **more: Any) -> dict[str, Any]:
    return {"id": f"{source}-{target}", "src": source, "dst": target, **more}


def edit(id: str, value: Any) -> dict[str, Any]:
    made = {"mode": "keep_only", "assignments": [{"name": "n", "value": value}]}
    return {"id": id, "type": "edit", "parameters": made}


def message(execution: str, node: str, definition: Any, context: Any, **more: Any) -> dict[str, Any]:
    return {
        "workflow_id": "wf_email_notification",
        "execution_id": execution,
        "current_node": node,
        "workflow_definition": definition,
        "accumulated_context": context,
        **more,
    }


TRIGGER = {"id": "trigger", "type": "manual"}
START = {"$trigger": {"user_id": "user_123", "timestamp": "2025-10-09T12:34:56Z"}}


MIDDLE = {
    "nodes": [
        TRIGGER,
        edit("a", 1),
        edit("b", "{{ $a.n + 1 }}"),
        edit("c", "{{ $b.n + 1 }}"),
        edit("side", 0),
        {"id": "all", "type": "merge", "parameters": {"wait_mode": "wait_for_all"}},
        {"id": "first", "type": "merge", "parameters": {"wait_mode": "wait_for_any"}},
    ],
    "edges": [
        edge("trigger", "a"),
        edge("a", "b"),
        edge("b", "c"),
        edge("a", "side"),
        edge("c", "all"),
        edge("side", "all"),
        edge("a", "first"),
        edge("c", "first"),
    ],
}


SPLIT = {
    "nodes": [
        TRIGGER,
        {"id": "each", "type": "split", "parameters": {"input_array": "{{ $trigger.items }}"}},
        edit("work", "{{ $item }}"),
        {"id": "list", "type": "aggregator"},
    ],
    "edges": [edge("trigger", "each"), edge("each", "work"), edge("work", "list")],
}
FRAME = {"split_node_id": "each", "item_index": 0, "branch_id": "b", "total_items": 2}
CHAIN_INPUT = {"n": 1, "list": [10, 20]}
CHAIN = {
    "nodes": [
        TRIGGER,
        edit("first", "{{ $trigger.n + 1 }}"),
        {"id": "each", "type": "split", "parameters": {"input_array": "{{ $trigger.list }}"}},
        edit("double", "{{ $item * 2 }}"),
        {"id": "all", "type": "aggregator"},
        edit("last", "{{ $first.n + $all[1].n }}"),
    ],
    "edges": [
        edge("trigger", "first"),
        edge("first", "each"),
        edge("each", "double"),
        edge("double", "all"),
        edge("all", "last"),
    ],
}
