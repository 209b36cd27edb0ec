"""Node types from plain functions."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from typing import Annotated, Any, Literal

import msgspec
import pytest

from rune.core.execution.outcome import Failure, Outcome, Output, Suspend
from rune.core.expr import Names
from rune.core.plan.parameters import compile_parameters
from rune.errors import NodeFailure
from rune.nodes.base import RunnableType
from rune.nodes.custom import NodeContext, kind_of, node
from rune.nodes.registry import execute_async, prepare, standard_registry
from tests.unit.nodes.running import error, output


@node("acme.score", errors={"NO_CUSTOMER": "nobody is called so"})
async def score(ctx: NodeContext, customer_id: str, weight: float = 1.0) -> dict[str, Any]:
    """Scores a customer.

    The higher the better.
    """
    if not customer_id:
        raise NodeFailure("nobody", code="NO_CUSTOMER")
    return {
        "id": customer_id,
        "score": weight * 2,
        "seen": ctx.payload,
        "key": ctx.idempotency_key,
        "try": ctx.attempt,
    }


@dataclasses.dataclass
class Point:
    x: int
    y: tuple[int, ...] = (1, 2)


@node("acme.point", effectful=False, aliases=("point",))
def point(
    x: int,
    *,
    scale: Annotated[int, msgspec.Meta(ge=1, description="How large.")] = 1,
    tags: list[str] = [],  # noqa: B006
    shape: Literal["round", "square"] = "round",
) -> Point:
    tags.append("seen")
    return Point(x * scale)


def known(function: Any) -> RunnableType:
    found = kind_of(function)
    assert found is not None
    return found


def run(function: Any, parameters: dict[str, Any], **facts: Any) -> Outcome:
    kind = known(function)
    assert not kind.type.check(parameters, lambda text: "$" in text)
    compiled = compile_parameters(kind.type, parameters, Names(frozenset(), {}))
    scope = {"$json": {"p": 1}, "$trigger": {"id": "c7", "n": 3}}
    prepared = prepare(kind, compiled, scope, now=5, **facts)
    return prepared if isinstance(prepared, Failure) else asyncio.run(execute_async(kind, prepared))


def test_an_async_function_is_a_node() -> None:
    outcome = run(score, {"customer_id": "$trigger.id", "weight": 3}, idempotency_key="e1:score@/", attempt=2)
    assert output(outcome) == {"id": "c7", "score": 6.0, "seen": {"p": 1}, "key": "e1:score@/", "try": 2}


def test_a_function_is_a_node_and_what_it_returns_becomes_json() -> None:
    assert output(run(point, {"x": "$trigger.n", "scale": 2})) == {"x": 6, "y": [1, 2]}


def test_defaults_are_not_shared_between_runs() -> None:
    def seen(tags: list[str] = []) -> list[str]:  # noqa: B006
        tags.append("x")
        return tags

    made = node("acme.tags", effectful=False)(seen)
    assert output(run(made, {})) == ["x"]
    assert output(run(made, {})) == ["x"]


def test_the_function_stays_callable() -> None:
    assert point(2, scale=3) == Point(6)


def test_the_declaration_follows_from_the_function() -> None:
    type = known(score).type
    assert (type.name, type.summary) == ("acme.score", "Scores a customer.")
    assert "The higher the better." in type.doc
    assert type.errors == {"NO_CUSTOMER": "nobody is called so"}
    assert type.effectful({}) is True
    assert type.schema["required"] == ["customer_id"]
    assert set(type.schema["properties"]) == {"customer_id", "weight"}
    assert known(point).type.effectful({}) is False
    assert known(point).type.schema["properties"]["scale"]["description"] == "How large."


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({}, "x"),
        ({"x": "one"}, "x"),
        ({"x": 1, "scale": 0}, "scale"),
        ({"x": 1, "shape": "oval"}, "shape"),
        ({"x": 1, "nope": 1}, "nope"),
    ],
)
def test_parameters_are_checked_before_anything_runs(parameters: dict[str, Any], path: str) -> None:
    found = known(point).type.check(parameters, lambda text: False)
    assert [each.path for each in found] == [path]


def test_resolved_parameters_are_checked_too() -> None:
    found = error(run(point, {"x": "$trigger.id"}))
    assert found.code == "BAD_PARAMETER"
    assert "parameters.x" in found.message


def test_a_failure_keeps_its_code() -> None:
    assert error(run(score, {"customer_id": ""})).code == "NO_CUSTOMER"


def test_an_outcome_is_taken_as_it_is() -> None:
    @node("acme.hold", effectful=False)
    def hold(mode: str) -> Outcome:
        return Suspend(signal="go") if mode == "wait" else Output({"ok": True}, "fast")

    assert run(hold, {"mode": "wait"}) == Suspend(signal="go")
    assert run(hold, {"mode": ""}) == Output({"ok": True}, "fast")


@pytest.mark.parametrize("value", [float("nan"), {1: 2}, object()])
def test_what_is_not_json_does_not_leave(value: Any) -> None:
    @node("acme.odd", effectful=False)
    def odd() -> Any:
        return value

    assert error(run(odd, {})).code == "NOT_JSON"


def test_a_function_that_blocks_does_not_hold_up_the_others() -> None:
    @node("acme.slow")
    def slow() -> bool:
        return threading.current_thread() is threading.main_thread()

    @node("acme.quick", effectful=False)
    def quick() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert output(run(slow, {})) is False
    assert output(run(quick, {})) is True


def test_custom_types_stand_beside_the_standard_ones() -> None:
    grown = standard_registry().extended([known(score), known(point)])
    assert grown["point"] is grown["acme.point"]


@pytest.mark.parametrize("name", ["", "1st", "has space", "acme.", ".x", "$x"])
def test_a_bad_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a valid node type name"):
        node(name)


def test_arguments_that_no_document_could_give_are_refused() -> None:
    def starred(*values: int) -> None: ...
    def named(**values: int) -> None: ...
    def positional(value: int, /) -> None: ...
    def late(value: int, ctx: NodeContext) -> None: ...
    def odd(value: threading.Lock) -> None: ...

    for each in (starred, named, positional, late, odd):
        with pytest.raises(TypeError, match=r"acme\.bad"):
            node("acme.bad")(each)


def test_anything_else_is_no_node() -> None:
    assert kind_of(print) is None
    assert kind_of(5) is None
    assert kind_of(None) is None
