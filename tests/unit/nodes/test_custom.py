"""Node types from decorated functions."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from typing import Annotated, Any, Literal

import msgspec
import pytest

from rune.core.execution.outcome import Failure, Outcome, Output, Suspend
from rune.core.expr import Names
from rune.core.plan.model import compile_parameters
from rune.errors import NodeFailure
from rune.nodes.base import RunnableType
from rune.nodes.custom import NodeContext, kind_of, node
from rune.nodes.registry import execute_async, prepare, standard_registry
from rune.testing.harness import run_document
from tests.unit.nodes.runner import error, output


@node("acme.score", errors={"NO_CUSTOMER": "no such customer"})
async def score(ctx: NodeContext, customer_id: str, weight: float = 1.0) -> dict[str, Any]:
    """Scores a customer.

    The higher the better.
    """
    if not customer_id:
        raise NodeFailure("no such customer", code="NO_CUSTOMER")
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


def type_of(function: Any) -> RunnableType:
    found = kind_of(function)
    assert found is not None
    return found


def run(function: Any, parameters: dict[str, Any], **options: Any) -> Outcome:
    kind = type_of(function)
    assert not kind.type.check(parameters, lambda text: "$" in text)
    compiled = compile_parameters(kind.type, parameters, Names(frozenset(), {}))
    scope = {"$json": {"p": 1}, "$trigger": {"id": "c7", "n": 3}}
    prepared = prepare(kind, compiled, scope, now=5, **options)
    return prepared if isinstance(prepared, Failure) else asyncio.run(execute_async(kind, prepared))


def test_async_function_runs_as_node() -> None:
    outcome = run(score, {"customer_id": "$trigger.id", "weight": 3}, idempotency_key="e1:score@/", attempt=2)
    assert output(outcome) == {"id": "c7", "score": 6.0, "seen": {"p": 1}, "key": "e1:score@/", "try": 2}


def test_dataclass_result_becomes_json() -> None:
    assert output(run(point, {"x": "$trigger.n", "scale": 2})) == {"x": 6, "y": [1, 2]}


def test_defaults_are_not_shared_between_runs() -> None:
    def seen(tags: list[str] = []) -> list[str]:  # noqa: B006
        tags.append("x")
        return tags

    decorated = node("acme.tags", effectful=False)(seen)
    assert output(run(decorated, {})) == ["x"]
    assert output(run(decorated, {})) == ["x"]


def test_decorated_function_stays_callable() -> None:
    assert point(2, scale=3) == Point(6)


def test_declaration_is_derived_from_function() -> None:
    type = type_of(score).type
    assert (type.name, type.summary) == ("acme.score", "Scores a customer.")
    assert "The higher the better." in type.doc
    assert type.errors == {"NO_CUSTOMER": "no such customer"}
    assert type.effectful({}) is True
    assert type.schema["required"] == ["customer_id"]
    assert set(type.schema["properties"]) == {"customer_id", "weight"}
    assert type_of(point).type.effectful({}) is False
    assert type_of(point).type.schema["properties"]["scale"]["description"] == "How large."


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
def test_invalid_parameters_are_reported(parameters: dict[str, Any], path: str) -> None:
    found = type_of(point).type.check(parameters, lambda text: False)
    assert [each.path for each in found] == [path]


def test_resolved_parameters_are_checked() -> None:
    found = error(run(point, {"x": "$trigger.id"}))
    assert found.code == "BAD_PARAMETER"
    assert "parameters.x" in found.message


def test_node_failure_keeps_code() -> None:
    assert error(run(score, {"customer_id": ""})).code == "NO_CUSTOMER"


def test_returned_outcome_is_used_unchanged() -> None:
    @node("acme.hold", effectful=False)
    def hold(mode: str) -> Outcome:
        return Suspend(signal="go") if mode == "wait" else Output({"ok": True}, "fast")

    assert run(hold, {"mode": "wait"}) == Suspend(signal="go")
    assert run(hold, {"mode": ""}) == Output({"ok": True}, "fast")


@pytest.mark.parametrize("value", [float("nan"), {1: 2}, object()])
def test_non_json_result_fails(value: Any) -> None:
    @node("acme.odd", effectful=False)
    def odd() -> Any:
        return value

    assert error(run(odd, {})).code == "NOT_JSON"


def test_effectful_sync_function_runs_in_thread() -> None:
    @node("acme.slow")
    def slow() -> bool:
        return threading.current_thread() is threading.main_thread()

    @node("acme.quick", effectful=False)
    def quick() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert output(run(slow, {})) is False
    assert output(run(quick, {})) is True


def test_custom_types_extend_standard_registry() -> None:
    extended = standard_registry().extended([type_of(score), type_of(point)])
    assert extended["point"] is extended["acme.point"]


@pytest.mark.parametrize("name", ["", "1st", "has space", "acme.", ".x", "$x"])
def test_invalid_type_name_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="not a valid node type name"):
        node(name)


def test_unsupported_arguments_are_rejected() -> None:
    def starred(*values: int) -> None: ...
    def named(**values: int) -> None: ...
    def positional(value: int, /) -> None: ...
    def late(value: int, ctx: NodeContext) -> None: ...
    def odd(value: threading.Lock) -> None: ...

    for each in (starred, named, positional, late, odd):
        with pytest.raises(TypeError, match=r"acme\.bad"):
            node("acme.bad")(each)


def test_kind_of_other_objects_is_none() -> None:
    assert kind_of(print) is None
    assert kind_of(5) is None
    assert kind_of(None) is None


@node("acme.refuse", permanent={"DECLARED"})
def refuse(code: str, permanent: bool | None = None) -> None:
    raise NodeFailure("no", code=code, permanent=permanent)


@pytest.mark.parametrize(
    ("parameters", "attempts"),
    [
        ({"code": "E"}, 3),
        ({"code": "E", "permanent": True}, 1),
        ({"code": "DECLARED"}, 1),
        ({"code": "DECLARED", "permanent": False}, 3),
    ],
)
def test_custom_node_states_whether_failure_is_retried(parameters: dict[str, Any], attempts: int) -> None:
    registry = standard_registry().extended([type_of(refuse)])
    run = {"id": "it", "type": "acme.refuse", "parameters": parameters, "retry": {"max_attempts": 3}}

    result = run_document({"id": "w", "nodes": [run]}, registry=registry)

    assert [each["attempts"] for each in result["nodes"]] == [attempts]
