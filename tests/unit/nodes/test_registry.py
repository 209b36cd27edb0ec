"""The registry and the execution of nodes."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import msgspec
import pytest

from rune.core.execution.outcome import Failure, Outcome, Output
from rune.core.expr import Names
from rune.core.plan.model import compile_parameters
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
from tests.unit.nodes.runner import error, output, run


class Parameters(Model, kw_only=True, frozen=True):
    """Parameters of the test types."""

    count: int = 1
    options: dict[str, int] | None = None


def runnable_type(
    behaviour: Behaviour, *, lax: bool = False, builds: bool = True, name: str = "test"
) -> RunnableType:
    return RunnableType(declare(name, Parameters, lax=lax), Parameters, behaviour, lax, builds)


def outcome_of(type_: RunnableType, parameters: dict[str, Any] | None = None, trigger: Any = None) -> Outcome:
    compiled = compile_parameters(type_.type, parameters or {}, Names(frozenset(), {}))
    return run_node(type_, compiled, {"$trigger": trigger, "$json": None}, now=0)


def call() -> NodeCall[Any]:
    return NodeCall(Parameters(), {"$json": None}, now=0)


def test_catalogue_contains_every_declared_type() -> None:
    assert dict(standard_registry().catalogue) == dict(standard_catalogue())


def test_every_runnable_type_is_declared() -> None:
    declared = {each.name: each for each in STANDARD}
    for each in standard_registry():
        assert declared[each.type.name] is each.type


@pytest.mark.parametrize(("alias", "name"), [("if", "conditional"), ("set", "edit"), ("edit", "edit")])
def test_lookup_by_name_and_alias(alias: str, name: str) -> None:
    assert alias in standard_registry()
    assert standard_registry()[alias].type.name == name


def test_unknown_type_raises_with_name() -> None:
    assert "nope" not in standard_registry()
    with pytest.raises(UnknownNodeTypeError, match="nope"):
        standard_registry()["nope"]


def test_extended_registry_rejects_taken_names() -> None:
    type_ = runnable_type(lambda call: Output(1), name="acme.one")
    extended = standard_registry().extended([type_])
    assert extended["acme.one"] is type_
    assert extended["if"] is standard_registry()["if"]
    assert "acme.one" in extended.catalogue
    assert "acme.one" not in standard_registry()
    for taken in ("if", "edit", "http", "acme.one"):
        with pytest.raises(ValueError, match=taken):
            extended.extended([runnable_type(lambda call: Output(1), name=taken)])


def test_registry_without_standard_types() -> None:
    type_ = runnable_type(lambda call: Output(1))
    assert list(Registry([type_]).catalogue) == ["test"]


def test_parameters_are_converted_to_model() -> None:
    type_ = runnable_type(lambda call: Output(call.parameters.count))
    assert output(outcome_of(type_, {"count": "$trigger"}, 5)) == 5


@pytest.mark.parametrize(
    ("parameters", "trigger", "message"),
    [
        ({"count": "$trigger"}, "5", "parameters.count: a whole number expected"),
        ({"count": "$trigger"}, 1.5, "parameters.count: a whole number expected"),
        ({"options": {"a": "$trigger"}}, [], "parameters.options.a: a whole number expected"),
    ],
)
def test_invalid_value_fails_node_with_path(parameters: dict[str, Any], trigger: Any, message: str) -> None:
    found = error(outcome_of(runnable_type(lambda call: Output(1)), parameters, trigger))
    assert found.code == "BAD_PARAMETER"
    assert found.message.startswith(message)


def test_lax_type_accepts_numbers_as_text() -> None:
    type_ = runnable_type(lambda call: Output(call.parameters.count), lax=True)
    assert output(outcome_of(type_, {"count": "$trigger"}, "5")) == 5


def test_h_g1_unresolved_parameter_prevents_run() -> None:
    # Red if the node runs with the parameters that could be resolved.
    ran: list[Any] = []

    def behaviour(call: NodeCall[Any]) -> Outcome:
        ran.append(call)
        return Output(1)

    found = error(outcome_of(runnable_type(behaviour), {"count": 1, "options": {"a": "$trigger.b"}}, {}))
    assert found.code == "EXPRESSION_ERROR"
    assert "parameters.options.a: $trigger.b" in found.message
    assert not ran


def test_h_c6_exception_becomes_failure() -> None:
    # Red if an exception reaches the worker.
    def behaviour(call: NodeCall[Any]) -> Outcome:
        raise ZeroDivisionError("by zero")

    found = error(execute(runnable_type(behaviour), call()))
    assert (found.code, found.message) == ("NODE_ERROR", "ZeroDivisionError: by zero")


def test_node_failure_keeps_code_and_details() -> None:
    def behaviour(call: NodeCall[Any]) -> Outcome:
        raise NodeFailure("teapot", code="HTTP_STATUS", details={"status": 418})

    found = error(execute(runnable_type(behaviour), call()))
    assert (found.code, found.message, found.details) == ("HTTP_STATUS", "teapot", {"status": 418})


@pytest.mark.parametrize("value", [math.nan, {"a": [math.inf]}, {1: 2}, object()])
def test_h_c5_non_json_output_is_failure(value: Any) -> None:
    # Red if outputs are not checked before they are stored.
    assert error(execute(runnable_type(lambda call: Output(value)), call())).code == "NOT_JSON"


def test_output_of_type_that_builds_nothing_is_not_checked() -> None:
    unusual = (1, 2)
    outcome = execute(runnable_type(lambda call: Output(unusual), builds=False), call())
    assert output(outcome) is unusual


def test_execute_async_runs_sync_and_async_nodes() -> None:
    async def behaviour(call: NodeCall[Any]) -> Outcome:
        return Output({"at": math.nan} if call.attempt > 1 else {"at": 1})

    type_ = runnable_type(behaviour)
    assert output(asyncio.run(execute_async(type_, call()))) == {"at": 1}
    second = NodeCall(Parameters(), {"$json": None}, now=0, attempt=2)
    assert error(asyncio.run(execute_async(type_, second))).code == "NOT_JSON"
    plain = runnable_type(lambda call: Output(2))
    assert output(asyncio.run(execute_async(plain, call()))) == 2


def test_exception_in_async_node_becomes_failure() -> None:
    async def behaviour(call: NodeCall[Any]) -> Outcome:
        raise TimeoutError("slow")

    found = asyncio.run(execute_async(runnable_type(behaviour), call()))
    assert isinstance(found, Failure)
    assert found.error.message == "TimeoutError: slow"


def test_limits_of_call_apply() -> None:
    limits = msgspec.structs.replace(call().limits, json_depth=2)
    assert error(run("log", {"message": [[[1]]]}, limits=limits)).code == "LIMIT_EXCEEDED"
    assert output(run("log", {"message": [[1]]}, limits=limits)) == [[1]]
