"""Failed items are counted, whatever the end of the execution."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rune.core.execution.fact import ExecutionEnded, NodeResult
from tests.support.backends import Backend, backends, until_suspended
from tests.support.waiting import until
from tests.support.workflows import edit, fail, of_type, split, wait_for_signal, workflow

COLLECTED = workflow(
    "start>s s>h h>g g>out",
    s=split(),
    h=edit(x="{{ 6 / $item }}"),
    g=of_type("aggregator"),
    out=of_type("output", value="$g"),
)
UNCOLLECTED = workflow("start>s s>h", s=split(), h=edit(x="{{ 6 / $item }}"))
TWO_PATHS = workflow("start>s s>a s>b a>g b>g", s=split(), a=fail("A"), b=fail("B"), g=of_type("aggregator"))
THEN_HALTED = workflow(
    "start>s s>h h>g g>f", s=split(), h=edit(x="{{ 6 / $item }}"), g=of_type("aggregator"), f=fail()
)


@backends("embedded", "redis", "redis-travelling", "rabbitmq")
@pytest.mark.parametrize(
    ("document", "status"),
    [(COLLECTED, "completed"), (UNCOLLECTED, "failed"), (THEN_HALTED, "halted")],
    ids=["collected", "uncollected", "halted"],
)
def test_failed_items_are_counted(document: dict[str, Any], status: str, backend: Backend) -> None:
    result = backend.run(document, {"items": [1, 0, 3, 0]})
    assert (result["status"], result["failed_items"]) == (status, 2)


@backends("embedded", "redis")
def test_item_that_fails_on_two_paths_is_counted_once(backend: Backend) -> None:
    assert backend.run(TWO_PATHS, {"items": [1, 2, 3]})["failed_items"] == 3


@backends("embedded", "redis")
def test_nested_items_are_counted_where_they_fail(backend: Backend) -> None:
    document = workflow(
        "start>s s>t t>h h>g g>k",
        s=split(),
        t=split("$item"),
        h=edit(x="{{ 6 / $item }}"),
        g=of_type("aggregator"),
        k=of_type("aggregator"),
    )
    assert backend.run(document, {"items": [[1, 0], [0, 0]]})["failed_items"] == 3


@backends("embedded", "redis", "rabbitmq")
def test_failed_items_of_cancelled_execution_are_counted_from_the_journal(backend: Backend) -> None:
    document = workflow(
        "start>s s>h h>w w>g",
        s=split(),
        h=edit(x="{{ 6 / $item }}"),
        w=wait_for_signal(),
        g=of_type("aggregator"),
    )

    async def go() -> tuple[int, ExecutionEnded, Any]:
        async with backend.open() as engine:
            run = await engine.start(document, {"items": [1, 0]})
            await until_suspended(run)

            async def failed() -> bool:
                facts = [row.fact for row in await run.facts()]
                return any(isinstance(each, NodeResult) and each.status == "failed" for each in facts)

            await until(failed, "the item has failed", 60.0)
            before = (await run.document())["failed_items"]
            await engine.engine.services.executions.cancel(run.id)
            end = await run.end()
            (event,) = [each for each in (await run.history()).events() if each.kind == "execution.cancelled"]
            return before, end, event.details["failed_items"]

    before, end, shown = asyncio.run(go())
    assert (before, end.failed_items, shown) == (1, 1, 1)
