"""Pins: outputs that are given to nodes, in documents and plans."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from rune.core.definition import problems as codes
from rune.core.definition.model import Pin, canonical
from rune.core.definition.parser import NO_PINS, Parsed, Pins, parse_document, pinned_nodes, with_pins
from rune.core.limits import LIMITS
from rune.core.validation.validate import validate
from tests.support.plans import (
    CATALOGUE,
    aggregator,
    conditional,
    document,
    merge,
    node,
    node_plan,
    plan,
    split,
)


def parsed(chains: str, **nodes: Any) -> Parsed:
    return parse_document(json.dumps(document(chains, nodes)))


def problems(given: Parsed, *, warnings: bool = False) -> list[tuple[str, str]]:
    return [
        (each.path, each.code) for each in validate(given, CATALOGUE) if warnings or each.severity == "error"
    ]


def test_pin_in_document_is_read_and_changes_the_content() -> None:
    given = parsed("start -> a", a=node(pin={"output": {"x": 1}, "outlet": None}))

    assert given.problems == ()
    assert given.definition is not None
    assert given.definition.nodes[1].pin == Pin(output={"x": 1})
    without = parsed("start -> a").definition
    assert without is not None
    assert canonical(given.definition) != canonical(without)
    assert pinned_nodes(given.definition) == [1]
    assert pinned_nodes(without) == []


@pytest.mark.parametrize(
    ("pin", "problem"),
    [
        (5, ("nodes[1].pin", codes.WRONG_TYPE)),
        ({"value": 1}, ("nodes[1].pin.value", codes.UNKNOWN_FIELD)),
        ({"outlet": ""}, ("nodes[1].pin.outlet", codes.WRONG_VALUE)),
    ],
)
def test_malformed_pin_is_reported(pin: Any, problem: tuple[str, str]) -> None:
    assert problem in problems(parsed("start -> a", a=node(pin=pin)))


def test_pinned_document_is_valid_with_a_warning() -> None:
    given = parsed("start -> a", a=node("act", pin={"output": 1}))

    assert problems(given) == []
    assert problems(given, warnings=True) == [("nodes[1].pin", codes.PINNED)]


@pytest.mark.parametrize(
    ("chains", "nodes", "problem"),
    [
        ("start -> a", {"start": node("input", pin={"output": 1})}, ("nodes[0].pin", codes.WRONG_VALUE)),
        (
            "start -> s -> x",
            {"s": split(pin={"output": {"a": 1}})},
            ("nodes[1].pin.output", codes.WRONG_TYPE),
        ),
        (
            "start -> c -true-> x",
            {"c": conditional(pin={"output": 1})},
            ("nodes[1].pin.outlet", codes.MISSING_FIELD),
        ),
        (
            "start -> c -true-> x",
            {"c": conditional(pin={"output": 1, "outlet": "maybe"})},
            ("nodes[1].pin.outlet", codes.UNKNOWN_OUTLET),
        ),
        (
            "start -> a",
            {"a": node(pin={"output": 1, "outlet": "true"})},
            ("nodes[1].pin.outlet", codes.UNKNOWN_OUTLET),
        ),
    ],
)
def test_pin_that_does_not_fit_its_node_is_reported(
    chains: str, nodes: dict[str, Any], problem: tuple[str, str]
) -> None:
    assert problems(parsed(chains, **nodes)) == [problem]


def test_pin_of_unknown_type_is_not_checked() -> None:
    assert problems(parsed("start -> a", a=node("nosuch", pin={"output": 1}))) == [
        ("nodes[1].type", codes.UNKNOWN_TYPE)
    ]


def test_pin_with_another_engine_is_reported() -> None:
    raw = document("start -> a", {"a": node(pin={"output": 1})}, {"executor": "legacy"})

    assert problems(parse_document(json.dumps(raw))) == [("nodes[1].pin", codes.WRONG_VALUE)]


def test_with_pins_sets_outputs_and_outlets() -> None:
    given = parsed("start -> a -> c -true-> x", a=node(pin={"output": "old"}), c=conditional())

    pinned = with_pins(given, Pins({"a": 7, "c": None}, {"c": "true"}))

    assert pinned.definition is not None
    assert [each.pin for each in pinned.definition.nodes] == [
        None,
        Pin(output=7),
        Pin(outlet="true"),
        None,
    ]
    assert problems(pinned) == []
    assert with_pins(given, NO_PINS) is given


def test_with_pins_reports_pins_without_a_node() -> None:
    pinned = with_pins(parsed("start -> ask"), Pins({"aks": 1}, {"ask": "x", "other": "y"}))

    assert [(each.path, each.code) for each in pinned.problems] == [
        ("pins.aks", codes.UNKNOWN_NODE),
        ("outlets.other", codes.UNKNOWN_NODE),
        ("outlets.ask", codes.NO_EFFECT),
    ]
    assert "`ask`" in pinned.problems[0].hint


def test_with_pins_limits_their_size() -> None:
    pinned = with_pins(parsed("start -> a"), Pins({"a": "x" * 500}), replace(LIMITS, definition_bytes=400))

    assert [(each.path, each.code) for each in pinned.problems] == [("pins", codes.TOO_LARGE)]


def test_with_pins_keeps_a_document_that_cannot_be_read() -> None:
    broken = parse_document(b"{")

    assert with_pins(broken, Pins({"a": 1})) is broken


def test_pinned_node_neither_acts_nor_waits() -> None:
    retry = {"max_attempts": 3}
    p = plan(
        "start -> w -> a -> m, start -> b -> m",
        w=node("wait", {"resume": "signal"}, pin={"output": 1}),
        a=node("act", pin={"output": 2}, retry=retry, timeout=5, queue="slow", at_most_once=True),
        m=merge(),
    )

    waits, acts = node_plan(p, "w"), node_plan(p, "a")
    assert (waits.type.suspends, waits.pure, waits.parameters.dynamic) == (False, True, ())
    assert (acts.pure, acts.retry.max_attempts, acts.node.queue) == (True, 1, None)
    assert (acts.node.timeout, acts.node.at_most_once, acts.node.credentials) == (None, False, None)
    assert node_plan(p, "m").timeout == 300_000  # as after nodes that do not wait


def test_pinned_node_keeps_its_place_in_the_graph() -> None:
    p = plan(
        "start -> s -> x -> g -> c -true-> y",
        s=split(pin={"output": [1, 2]}),
        g=aggregator(pin={"output": "all"}),
        c=conditional(pin={"output": 3, "outlet": "true"}),
    )

    assert node_plan(p, "s").fans_out
    assert node_plan(p, "g").joins_items
    assert node_plan(p, "x").depth == 1
    assert set(node_plan(p, "c").by_outlet) == {"true", "false"}


def test_pinned_node_passes_on_what_its_type_passes_on() -> None:
    p = plan(
        "start -> c -true-> n -> a",
        c=conditional(pin={"output": {"result": True}, "outlet": "true"}),
        n=node("noop", pin={"output": 1}),
    )

    assert node_plan(p, "c").passes_payload
    assert not node_plan(p, "n").passes_payload  # its output is what the nodes after it receive


def test_type_with_a_retry_policy_has_none_when_pinned() -> None:
    p = plan("start -> h", h=node("http", {"url": "http://x", "retry": 3}, pin={"output": {}}))

    assert node_plan(p, "h").retry.max_attempts == 1
