"""The registry, and how a node is run."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import msgspec
import pytest

from rune.core.execution.outcome import Failure, Outcome, Output
from rune.core.expr import Names
from rune.core.plan.parameters import compile_parameters
from rune.errors import NodeFailure
from rune.nodes.base import Behaviour, NodeCall, RunnableType
from rune.nodes.registry import (
    STANDARD,
    Registry,
    UnknownNodeTypeError,
    execute,
    execute_async,
    run_node,
    standard_catalogue,
    standard_registry,
)
from rune.nodes.schema import Model, declare
from tests.unit.nodes.running import error, output, run


class Parameters(Model, kw_only=True, frozen=True):
    """For the nodes made up here."""

    count: int = 1
    options: dict[str, int] | None = None


def kind(
    behaviour: Behaviour, *, lax: bool = False, builds: bool = True, name: str = "made-up"
) -> RunnableType:
    return RunnableType(declare(name, Parameters, lax=lax), Parameters, behaviour, lax, builds)


def outcome_of(made: RunnableType, parameters: dict[str, Any] | None = None, trigger: Any = None) -> Outcome:
    compiled = compile_parameters(made.type, parameters or {}, Names(frozenset(), {}))
    return run_node(made, compiled, {"$trigger": trigger, "$json": None}, now=0)


def call() -> NodeCall[Any]:
    return NodeCall(Parameters(), {"$json": None}, now=0)


def test_the_catalogue_has_every_declared_type() -> None:
    assert dict(standard_registry().catalogue) == dict(standard_catalogue())


def test_every_kind_that_runs_is_a_declared_one() -> None:
    declared = {each.name: each for each in STANDARD}
    for each in standard_registry():
        assert declared[each.type.name] is each.type


@pytest.mark.parametrize(("alias", "name"), [("if", "conditional"), ("set", "edit"), ("edit", "edit")])
def test_kinds_are_found_by_name_and_alias(alias: str, name: str) -> None:
    assert alias in standard_registry()
    assert standard_registry()[alias].type.name == name


def test_an_unknown_type_is_named() -> None:
    assert "nope" not in standard_registry()
    with pytest.raises(UnknownNodeTypeError, match="nope"):
        standard_registry()["nope"]


def test_a_registry_grows_but_no_name_is_taken_twice() -> None:
    made = kind(lambda call: Output(1), name="acme.one")
    grown = standard_registry().extended([made])
    assert grown["acme.one"] is made
    assert grown["if"] is standard_registry()["if"]
    assert "acme.one" in grown.catalogue
    assert "acme.one" not in standard_registry()
    for taken in ("if", "edit", "http", "acme.one"):
        with pytest.raises(ValueError, match=taken):
            grown.extended([kind(lambda call: Output(1), name=taken)])


def test_a_registry_may_have_nothing_but_its_own() -> None:
    made = kind(lambda call: Output(1))
    assert list(Registry([made]).catalogue) == ["made-up"]


def test_parameters_are_typed() -> None:
    made = kind(lambda call: Output(call.parameters.count))
    assert output(outcome_of(made, {"count": "$trigger"}, 5)) == 5


@pytest.mark.parametrize(
    ("parameters", "trigger", "told"),
    [
        ({"count": "$trigger"}, "5", "parameters.count: a whole number expected"),
        ({"count": "$trigger"}, 1.5, "parameters.count: a whole number expected"),
        ({"options": {"a": "$trigger"}}, [], "parameters.options.a: a whole number expected"),
    ],
)
def test_a_value_that_does_not_fit_fails_the_node_and_is_named(
    parameters: dict[str, Any], trigger: Any, told: str
) -> None:
    found = error(outcome_of(kind(lambda call: Output(1)), parameters, trigger))
    assert found.code == "BAD_PARAMETER"
    assert found.message.startswith(told)


def test_a_lax_type_takes_numbers_written_as_text() -> None:
    made = kind(lambda call: Output(call.parameters.count), lax=True)
    assert output(outcome_of(made, {"count": "$trigger"}, "5")) == 5


def test_h_g1_nothing_runs_with_a_parameter_that_cannot_be_resolved() -> None:
    # Red if the parameters that can be resolved are handed over anyway.
    ran: list[Any] = []

    def behaviour(call: NodeCall[Any]) -> Outcome:
        ran.append(call)
        return Output(1)

    found = error(outcome_of(kind(behaviour), {"count": 1, "options": {"a": "$trigger.b"}}, {}))
    assert found.code == "EXPRESSION_ERROR"
    assert "parameters.options.a: $trigger.b" in found.message
    assert not ran


def test_h_c6_every_exception_is_a_failure() -> None:
    # Red if an exception is let through to the worker.
    def behaviour(call: NodeCall[Any]) -> Outcome:
        raise ZeroDivisionError("by zero")

    found = error(execute(kind(behaviour), call()))
    assert (found.code, found.message) == ("NODE_ERROR", "ZeroDivisionError: by zero")


def test_a_failure_keeps_its_code_and_details() -> None:
    def behaviour(call: NodeCall[Any]) -> Outcome:
        raise NodeFailure("teapot", code="HTTP_STATUS", details={"status": 418})

    found = error(execute(kind(behaviour), call()))
    assert (found.code, found.message, found.details) == ("HTTP_STATUS", "teapot", {"status": 418})


@pytest.mark.parametrize("value", [math.nan, {"a": [math.inf]}, {1: 2}, object()])
def test_h_c5_an_output_that_is_not_json_is_a_failure(value: Any) -> None:
    # Red if outputs are not looked at before they are written.
    assert error(execute(kind(lambda call: Output(value)), call())).code == "NOT_JSON"


def test_what_was_checked_when_it_entered_is_not_looked_at_again() -> None:
    unusual = (1, 2)
    outcome = execute(kind(lambda call: Output(unusual), builds=False), call())
    assert output(outcome) is unusual


def test_nodes_that_wait_for_io_run_too() -> None:
    async def behaviour(call: NodeCall[Any]) -> Outcome:
        return Output({"at": math.nan} if call.attempt > 1 else {"at": 1})

    made = kind(behaviour)
    assert output(asyncio.run(execute_async(made, call()))) == {"at": 1}
    second = NodeCall(Parameters(), {"$json": None}, now=0, attempt=2)
    assert error(asyncio.run(execute_async(made, second))).code == "NOT_JSON"
    plain = kind(lambda call: Output(2))
    assert output(asyncio.run(execute_async(plain, call()))) == 2


def test_an_exception_behind_an_await_is_a_failure() -> None:
    async def behaviour(call: NodeCall[Any]) -> Outcome:
        raise TimeoutError("slow")

    found = asyncio.run(execute_async(kind(behaviour), call()))
    assert isinstance(found, Failure)
    assert found.error.message == "TimeoutError: slow"


def test_limits_are_those_of_the_call() -> None:
    limits = msgspec.structs.replace(call().limits, json_depth=2)
    assert error(run("log", {"message": [[[1]]]}, limits=limits)).code == "LIMIT_EXCEEDED"
    assert output(run("log", {"message": [[1]]}, limits=limits)) == [[1]]
