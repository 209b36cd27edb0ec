"""Errors in the history: the error of an execution names its node, and a custom node keeps its traceback."""

from __future__ import annotations

import asyncio
from typing import Any

from rune.core.execution.fact import AttemptFailed
from rune.nodes.base import MAX_MESSAGE_CHARS
from rune.nodes.custom import NodeContext, kind_of, node
from rune.nodes.registry import Registry, standard_registry
from tests.support.backends import Backend, backends
from tests.support.workflows import fail, node_entry, of_type, split, workflow

pytestmark = backends("embedded", "redis", "rabbitmq")


@node("errors.broken")
async def broken(ctx: NodeContext) -> dict[str, Any]:
    """Raise from a function of its own."""
    return _divide(ctx.attempt)


def _divide(number: int) -> dict[str, Any]:
    return {"result": number / 0}


def registry() -> Registry:
    found = kind_of(broken)
    assert found is not None
    return standard_registry().extended([found])


def test_error_of_halted_execution_names_node_type_and_attempt(backend: Backend) -> None:
    retry = {"max_attempts": 2, "initial_delay": 0.001}
    document = workflow("start>ok ok>f", ok=of_type("noop"), f={**fail("NOPE"), "retry": retry})
    error = backend.run(document)["error"]
    assert (error["code"], error["node_id"], error["node_type"]) == ("NOPE", "f", "fail")
    assert (error["lineage"], error["attempt"]) == ([], 2)


def test_error_of_execution_halted_by_an_item_names_its_lineage(backend: Backend) -> None:
    document = workflow("start>s s>f", s=split(), f={**fail(), "error": {"type": "halt"}})
    error = backend.run(document, {"items": [7]})["error"]
    assert (error["node_id"], error["lineage"]) == ("f", [{"split_node_id": "s", "item_index": 0}])


def test_error_of_items_without_aggregator_names_the_first(backend: Backend) -> None:
    document = workflow("start>s s>f", s=split(), f=fail())
    error = backend.run(document, {"items": [7, 8]})["error"]
    assert (error["code"], error["node_id"], error["attempt"]) == ("ITEMS_FAILED", "f", 1)
    assert error["lineage"] == [{"split_node_id": "s", "item_index": 0}]


def test_custom_node_keeps_traceback_of_each_attempt_without_engine_frames(backend: Backend) -> None:
    retry = {"max_attempts": 2, "initial_delay": 0.001}
    document = workflow("start>b", b={**of_type("errors.broken"), "retry": retry})

    async def go() -> tuple[dict[str, Any], list[str]]:
        async with backend.open(registry=registry()) as engine:
            run = await engine.start(document)
            await run.end()
            failed = [row.fact for row in await run.facts() if isinstance(row.fact, AttemptFailed)]
            return await run.document(), [each.failure.traceback for each in failed]

    result, attempts = asyncio.run(go())
    error = node_entry(result, "b")["error"]
    for traceback in (error["details"]["traceback"], *attempts):
        assert "in _divide" in traceback
        assert traceback.endswith("ZeroDivisionError: division by zero\n")
        assert "execute_async" not in traceback
    assert len(attempts) == 1
    # The values that other nodes read, and the error of the execution, do not repeat it.
    assert "traceback" not in str(result["error"])
    assert "traceback" not in str(result["context"])


def test_huge_message_of_a_node_makes_no_huge_status(backend: Backend) -> None:
    document = workflow("start>f", f={**of_type("fail"), "parameters": {"message": "{{ $json.text }}"}})

    result = backend.run(document, {"text": "no such order: " + "x" * 8 * 1024 * 1024})

    message = result["error"]["message"]
    assert message.startswith("no such order: xxx")
    assert len(message) == MAX_MESSAGE_CHARS
    assert node_entry(result, "f")["error"]["message"] == message
