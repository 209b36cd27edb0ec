"""Integers beyond 64 bits: a node that makes one fails with the limit, whatever way the value would take."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rune.nodes.custom import kind_of, node
from rune.nodes.registry import standard_registry
from rune.testing.harness import harness
from tests.support.workflows import edit, of_type, workflow

A = 9007199254740993
LONG = "{{ $start.a * $start.a }}"
IN_LIST = "{{ [1, $start.a * $start.a] }}"


@node("tests.long")
def make_long() -> int:
    """Returns an integer of 71 bits."""
    return 2**70


MAKERS: dict[str, dict[str, Any]] = {
    "edit": edit(v=LONG),
    "in_a_list": edit(v=IN_LIST),
    "custom": of_type("tests.long"),
    "split": of_type("split", input_array=IN_LIST),
    "child": of_type("workflow", workflow="child", input={"v": LONG}),
    "output": of_type("output", value=LONG),
    "filter": of_type("filter", input_array=IN_LIST, expression="true"),
    "sort": of_type("sort", input_array=IN_LIST),
    "limit": of_type("limit", input_array=IN_LIST, count=2),
    "switched": edit(v="{{ -1 * $start.a * $start.a }}"),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_node_that_makes_a_longer_integer_fails_with_the_limit(maker: str, tmp_path: Path) -> None:
    nodes = {"n": MAKERS[maker]}
    edges = "start>n"
    if maker == "split":
        edges, nodes["x"], nodes["g"] = "start>n n>x x>g", of_type("noop"), of_type("aggregator")

    kind = kind_of(make_long)
    assert kind is not None

    async def go() -> dict[str, Any]:
        async with harness(tmp_path, registry=standard_registry().extended([kind])) as engine:
            if maker == "child":
                await engine.engine.services.workflows.deploy(CHILD)
            return await engine.run(workflow(edges, **nodes), {"a": A})

    document = asyncio.run(go())
    assert document["status"] == "halted"
    assert document["error"]["code"] == "LIMIT_EXCEEDED"
    assert "at most 64 allowed" in document["error"]["message"]


CHILD = b'{"id": "child", "nodes": [{"id": "n", "type": "noop"}]}'


def test_longer_integers_are_exact_inside_of_an_expression(tmp_path: Path) -> None:
    async def go() -> dict[str, Any]:
        async with harness(tmp_path) as engine:
            expression = "{{ [str($start.a * $start.a), $start.a * $start.a % 1000, 2 ** 64 - 1] }}"
            return await engine.run(workflow("start>n", n=edit(v=expression)), {"a": A})

    output = asyncio.run(go())["output"]
    assert output == {"n": {"v": [str(A * A), A * A % 1000, 2**64 - 1]}}
