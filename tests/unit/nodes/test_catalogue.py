"""The standard node types: their parameters and traits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator

from rune.core.definition import problems
from rune.core.node_type import JoinRule, NodeType, Window
from rune.nodes.custom import kind_of
from rune.nodes.custom import node as node_type
from rune.nodes.registry import STANDARD, catalogue, describe, standard_catalogue, standard_registry
from rune.nodes.schema import Widget
from rune.ports.credentials import TYPES as CREDENTIAL_TYPES
from rune.testing.harness import harness
from tests.support.documents import document, node

TYPES = pytest.mark.parametrize("kind", STANDARD, ids=lambda kind: kind.name)


def check(name: str, parameters: dict[str, Any]) -> list[tuple[str, str]]:
    """Problems of parameters; text with braces counts as an expression."""
    found = standard_catalogue()[name].check(parameters, lambda text: "{{" in text)
    return [(each.path, each.code) for each in found]


def test_catalogue_contains_all_names_and_aliases() -> None:
    assert set(standard_catalogue()) == {
        *("manual", "input", "webhook", "schedule", "http", "call_external_service", "smtp", "llm_service"),
        *("conditional", "if", "switch", "split", "aggregator", "merge", "wait", "workflow", "edit", "set"),
        *("filter", "sort", "limit", "datetime", "log", "noop", "fail", "output"),
    }
    assert standard_catalogue()["if"] is standard_catalogue()["conditional"]


def test_duplicate_name_is_rejected() -> None:
    with pytest.raises(ValueError, match="`a`"):
        catalogue([NodeType(name="a"), NodeType(name="b", aliases=("a",))])


@TYPES
def test_type_is_presented(kind: NodeType) -> None:
    shown = describe(standard_registry(), kind)

    assert shown["category"] in {"trigger", "control", "data", "integration"}
    assert kind.trigger == (shown["category"] == "trigger")
    assert shown["icon"] not in {"", "puzzle"}
    assert set(shown["widgets"]) <= set(kind.schema["properties"])
    assert set(shown["widgets"].values()) <= set(get_args(Widget))
    assert set(shown["credential_types"]) <= set(CREDENTIAL_TYPES)
    assert bool(shown["credential_types"]) == kind.credentials
    if shown["output_schema"] is not None:
        Draft202012Validator.check_schema(shown["output_schema"])


def test_output_schemas_match_outputs(tmp_path: Path) -> None:
    raw = document(
        [
            node("in", "input"),
            node("if", "conditional", {"expression": "true"}),
            node("pick", "switch", {"rules": [{"value": 1, "compare": 1}]}),
            node("none", "switch", {"rules": [{"value": 1, "compare": 2}]}),
            node("few", "limit", {"input_array": "$trigger.xs", "count": 1}),
            node("some", "filter", {"input_array": "$trigger.xs", "expression": "$item > 1"}),
            node("order", "sort", {"input_array": "$trigger.xs"}),
            node("when", "datetime", {"operation": "now"}),
            node("each", "split", {"input_array": "$trigger.xs"}),
            node("all", "aggregator"),
        ],
        *("in>if", "if>pick:true", "if>none:true", "pick>few:case_0", "few>some", "some>order", "order>when"),
        *("when>each", "each>all"),
    )

    async def run() -> dict[str, Any]:
        async with harness(tmp_path) as engine:
            return await engine.run(raw, {"xs": [3, 1, 2]})

    result = asyncio.run(run())

    assert result["status"] == "completed"
    types = {each["id"]: standard_catalogue()[each["type"]] for each in raw["nodes"]}
    checked = {
        each["node_id"]: Draft202012Validator(dict(schema)).is_valid(each["output"])
        for each in result["nodes"]
        if (schema := types[each["node_id"]].output_schema) is not None
    }
    assert checked == dict.fromkeys(("if", "pick", "none", "few", "some", "order", "when", "all"), True)


def test_custom_type_states_its_presentation() -> None:
    @node_type("acme.score", effectful=False, category="crm", icon="gauge", widgets={"text": "text"})
    def score(text: str) -> int:
        return len(text)

    kind = kind_of(score)
    assert kind is not None
    shown = describe(standard_registry().extended([kind]), kind.type)
    assert (shown["category"], shown["icon"], shown["widgets"]) == ("crm", "gauge", {"text": "text"})


@TYPES
def test_type_is_documented(kind: NodeType) -> None:
    assert kind.summary.endswith(".")
    assert kind.doc
    assert kind.output
    assert all(code.isupper() and meaning for code, meaning in kind.errors.items())
    assert kind.permanent | kind.by_status <= kind.errors.keys()
    assert not kind.permanent & kind.by_status


@TYPES
def test_schema_is_self_contained_and_describes_parameters(kind: NodeType) -> None:
    Draft202012Validator.check_schema(dict(kind.schema))

    assert "$ref" not in str(kind.schema)
    assert kind.schema["additionalProperties"] is False
    assert all(each.get("description") for each in kind.schema["properties"].values())


@TYPES
def test_parameter_kinds_name_existing_parameters(kind: NodeType) -> None:
    assert set(kind.kinds) <= set(kind.schema["properties"])


VALID_PARAMETERS: dict[str, list[dict[str, Any]]] = {
    "manual": [{}],
    "input": [{}],
    "webhook": [{}, {"path": "orders", "method": "PUT", "auth": "hmac"}],
    "schedule": [
        {"cron": "*/5 * * * *", "timezone": "Europe/Berlin"},
        {"amount": 5, "unit": "hours", "overlap": "queue"},
    ],
    "http": [
        {"url": "x"},
        {
            "url": "x",
            "retry": "3",
            "retry_delay": "1.5",
            "timeout": "30",
            "ignore_ssl": "true",
            "max_bytes": "100",
        },
        {"url": "x", "query": {"a": [1, "b"], "c": None}, "headers": {"X": 3}, "raise_on_status": "4xx, 503"},
        {
            "url": "x",
            "timeout": "{{ 1 }}",
            "body": {"any": ["thing"]},
            "follow_next": True,
            "raise_on_status": 404,
        },
    ],
    "smtp": [
        {"to": "a@example.com"},
        {
            "from": "b@example.com",
            "to": ["a@example.com"],
            "attachments": [{"filename": "x", "content": "y"}],
        },
        {"to": "{{ x }}", "attachments": ["{{ x }}"], "html": True},
    ],
    "llm_service": [
        {"model": "m", "prompt": "p"},
        {"model": "m", "messages": [{"role": "user", "content": "x"}]},
    ],
    "conditional": [
        {"expression": "1 > 0"},
        {"expression": True},
        {"expression": [{"op1": 1, "operator": "gt", "op2": 0}], "operator": "or"},
    ],
    "switch": [{"rules": [{"value": 1}]}, {"rules": [{"value": 1}], "routes": ["a", None]}],
    "split": [{"input_array": [1]}, {"input_array": "{{ x }}", "max_in_flight": 3, "batch_size": 2}],
    "aggregator": [{}, {"timeout": 0, "tolerate": 3}, {"tolerate": "25%"}],
    "merge": [{}, {"wait_mode": {"at_least": 2}, "timeout": 1.5, "cancel_losers": True, "mode": "object"}],
    "wait": [
        {},
        {"amount": 0.5},
        {"resume": "date_time", "date_time": "{{ x }}"},
        {"resume": "signal", "name": "go"},
    ],
    "workflow": [{"workflow": "child"}, {"workflow": "{{ x }}", "version": 2, "input": None, "wait": False}],
    "edit": [
        {},
        {"assignments": [{"name": "a.b", "value": 1, "type": "number"}], "mode": "keep_only", "from": []},
    ],
    "filter": [
        {"expression": "$item"},
        {"rules": [{"field": "a", "operator": ">", "value": 0}], "match": "any"},
    ],
    "sort": [
        {},
        {"expression": "$item.a", "direction": "desc"},
        {"rules": [{"field": "a", "direction": "desc"}]},
    ],
    "limit": [{"count": 0}, {"count": "{{ 1 }}", "input_array": "{{ x }}"}],
    "datetime": [{}, {"operation": "add", "amount": 2, "unit": "days"}, {"operation": "parse", "date": 0}],
    "log": [{}, {"message": {"any": 1}, "level": "error"}],
    "noop": [{}, {"effectful": True}],
    "fail": [{}, {"message": "{{ x }}", "code": "BOOM"}],
    "output": [{}, {"value": None}],
}


@pytest.mark.parametrize(
    ("name", "parameters"), [(name, each) for name in VALID_PARAMETERS for each in VALID_PARAMETERS[name]]
)
def test_valid_parameters_are_accepted(name: str, parameters: dict[str, Any]) -> None:
    assert check(name, parameters) == []


def test_every_type_has_valid_examples() -> None:
    assert set(VALID_PARAMETERS) == {kind.name for kind in STANDARD}


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("noop", {"effectfull": True}, [("effectfull", problems.UNKNOWN_PARAMETER)]),
        ("noop", {"effectful": "true"}, [("effectful", problems.BAD_PARAMETER)]),
        ("split", {}, [("input_array", problems.MISSING_PARAMETER)]),
        ("split", {"input_array": "abc"}, [("input_array", problems.BAD_PARAMETER)]),
        ("split", {"input_array": [], "batch_size": 0}, [("batch_size", problems.BAD_PARAMETER)]),
        ("split", {"input_array": [], "batch_size": "{{ 2 }}"}, [("batch_size", problems.BAD_PARAMETER)]),
        ("merge", {"wait_mode": {"at_least": 0}}, [("wait_mode.at_least", problems.BAD_PARAMETER)]),
        ("merge", {"wait_mode": {}}, [("wait_mode.at_least", problems.MISSING_PARAMETER)]),
        ("merge", {"wait_mode": 5}, [("wait_mode", problems.BAD_PARAMETER)]),
        ("aggregator", {"tolerate": "250%"}, [("tolerate", problems.BAD_PARAMETER)]),
        (
            "http",
            {"url": "x", "headers": {"A": {}}, "method": "get"},
            [("method", problems.BAD_PARAMETER), ("headers.A", problems.BAD_PARAMETER)],
        ),
        (
            "http",
            {"url": "x", "query": 5, "timeout": "soon"},
            [("query", problems.BAD_PARAMETER), ("timeout", problems.BAD_PARAMETER)],
        ),
        ("http", {"url": "x", "retry": "{{ 3 }}"}, [("retry", problems.BAD_PARAMETER)]),
        ("http", {"url": "x", "raise_on_status": "9xx"}, [("raise_on_status", problems.BAD_PARAMETER)]),
        ("edit", {"assignments": "{{ x }}"}, [("assignments", problems.BAD_PARAMETER)]),
        (
            "edit",
            {"assignments": [{"value": 1}, 5, {"name": "a", "typ": 1}]},
            [
                ("assignments[0].name", problems.MISSING_PARAMETER),
                ("assignments[1]", problems.BAD_PARAMETER),
                ("assignments[2].typ", problems.UNKNOWN_PARAMETER),
            ],
        ),
        ("conditional", {"expression": []}, [("expression", problems.BAD_PARAMETER)]),
        (
            "conditional",
            {"expression": [{"op1": 1, "operator": "="}]},
            [("expression[0].operator", problems.BAD_PARAMETER)],
        ),
        (
            "conditional",
            {"expression": "x", "true_edge_id": "e", "false_edge_id": "e"},
            [("false_edge_id", problems.BAD_PARAMETER)],
        ),
        ("switch", {"rules": "{{ x }}"}, [("rules", problems.BAD_PARAMETER)]),
        ("switch", {"rules": [{"value": 1}], "routes": ["a"]}, [("routes", problems.BAD_PARAMETER)]),
        ("switch", {"rules": [{"value": 1}], "routes": ["a", "a"]}, [("routes", problems.BAD_PARAMETER)]),
        ("filter", {}, [("expression", problems.MISSING_PARAMETER)]),
        ("filter", {"expression": "x", "rules": [{"field": "a"}]}, [("rules", problems.BAD_PARAMETER)]),
        ("sort", {"expression": "x", "rules": [{"field": "a"}]}, [("rules", problems.BAD_PARAMETER)]),
        ("llm_service", {"model": "m"}, [("prompt", problems.MISSING_PARAMETER)]),
        ("wait", {"resume": "date_time"}, [("date_time", problems.MISSING_PARAMETER)]),
        ("wait", {"resume": "date_time", "date_time": "soon"}, [("date_time", problems.BAD_PARAMETER)]),
        ("wait", {"unit": "fortnights"}, [("unit", problems.BAD_PARAMETER)]),
        ("datetime", {"operation": "add"}, [("amount", problems.MISSING_PARAMETER)]),
        ("datetime", {"operation": "parse"}, [("date", problems.MISSING_PARAMETER)]),
        ("schedule", {}, [("cron", problems.MISSING_PARAMETER)]),
        ("schedule", {"cron": "* * * * *", "amount": 1}, [("amount", problems.BAD_PARAMETER)]),
        (
            "schedule",
            {"cron": "daily", "timezone": "Mars/Base"},
            [("cron", problems.BAD_PARAMETER), ("timezone", problems.BAD_PARAMETER)],
        ),
    ],
)
def test_all_invalid_parameters_are_reported(
    name: str, parameters: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert check(name, parameters) == expected


@pytest.mark.parametrize("value", ["x" * 100, None, True, 1.5, [1], [], {}])
def test_problem_message_is_bounded(value: Any) -> None:
    (problem,) = standard_catalogue()["merge"].check({"mode": value}, lambda text: False)

    assert "one of `append`" in problem.message
    assert len(problem.message) < 200


def test_template_in_static_parameter_has_hint() -> None:
    (problem,) = standard_catalogue()["merge"].check({"mode": "{{ x }}"}, lambda text: True)

    assert "not evaluated" in problem.hint


def traits(name: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    kind, raw = standard_catalogue()[name], parameters or {}
    return {
        "effectful": kind.effectful(raw),
        "passes": kind.passes_payload(raw),
        "reads": kind.reads_payload(raw),
        "binds": kind.binds_item(raw),
    }


def test_effectful_types() -> None:
    effectful = {kind.name for kind in STANDARD if kind.effectful({})}

    assert effectful == {"http", "smtp", "llm_service", "workflow"}
    assert traits("noop", {"effectful": True})["effectful"]


def test_types_that_pass_payload() -> None:
    assert {kind.name for kind in STANDARD if kind.passes_payload({})} == {
        "conditional",
        "switch",
        "wait",
        "log",
        "noop",
    }
    assert not traits("wait", {"resume": "signal"})["passes"]


def test_types_that_read_payload_by_default() -> None:
    reading = {kind.name for kind in STANDARD if kind.reads_payload({})}

    assert reading == {"merge", "workflow", "edit", "filter", "sort", "limit", "noop", "output"}
    assert not traits("edit", {"mode": "keep_only"})["reads"]
    assert not traits("edit", {"from": "$x"})["reads"]
    assert not traits("limit", {"input_array": "$x"})["reads"]
    assert not traits("output", {"value": 1})["reads"]


def test_types_that_bind_item() -> None:
    assert {kind.name for kind in STANDARD if kind.binds_item({})} == {"edit", "filter", "sort"}
    assert not traits("edit", {"mode": "keep_only"})["binds"]


def test_traits_of_types() -> None:
    def named(trait: str) -> set[str]:
        return {kind.name for kind in STANDARD if getattr(kind, trait)}

    assert named("suspends") == {"wait", "workflow"}
    assert named("fans_out") == {"split"}
    assert named("joins_items") == {"aggregator"}
    assert named("merges") == {"merge"}
    assert named("sets_output") == {"output"}
    assert named("trigger") == {"manual", "input", "webhook", "schedule"}
    assert named("credentials") == {"webhook", "http", "smtp", "llm_service"}


def test_join_rules() -> None:
    merge, aggregator = standard_catalogue()["merge"], standard_catalogue()["aggregator"]

    assert merge.join_rule({}) == JoinRule("all")
    assert merge.join_rule({"wait_mode": "wait_for_any", "cancel_losers": True}) == JoinRule(
        "any", None, True
    )
    assert merge.join_rule({"wait_mode": {"at_least": 2}, "timeout": 0}) == JoinRule(2, 0)
    assert aggregator.join_rule({"timeout": 120}) == JoinRule("all", 120)
    assert standard_catalogue()["edit"].join_rule({}) == JoinRule()


def test_split_window() -> None:
    split = standard_catalogue()["split"]

    assert split.window({"input_array": []}) == Window()
    assert split.window({"input_array": [], "max_in_flight": 3, "batch_size": 2}) == Window(3, 2)


def test_router_outlets_and_routes() -> None:
    condition, switch = standard_catalogue()["if"], standard_catalogue()["switch"]
    rules = {"rules": [{"value": 1}, {"value": 2}]}

    assert condition.outlets({}) == ("true", "false")
    assert condition.routes({"true_edge_id": "a"}) == {"a": "true"}
    assert condition.ignore_outlet == "false"
    assert switch.outlets(rules) == ("case_0", "case_1", "fallback")
    assert switch.routes(rules) == {}
    assert switch.routes(rules | {"routes": ["a", None, "b"]}) == {"a": "case_0", "b": "fallback"}
    assert switch.ignore_outlet == "fallback"


def test_http_retry_parameters_become_policy() -> None:
    http = standard_catalogue()["http"]

    assert http.retry({"url": "x"}) is None
    assert http.retry({"retry": "2", "retry_delay": "5"}) == {
        "max_attempts": 3,
        "backoff": 1.0,
        "jitter": False,
        "initial_delay": 5.0,
    }
    assert http.retry({"retry": 0}) == {"max_attempts": 1, "backoff": 1.0, "jitter": False}
