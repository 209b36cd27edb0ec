"""Validation of documents: problems, their codes and paths."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rune.core.definition import problems as codes
from rune.core.definition.parser import parse_document
from rune.core.definition.problems import Problem
from rune.core.limits import Limits
from rune.core.node_type import NodeType
from rune.core.validation.validate import validate, validate_document
from rune.nodes.registry import standard_catalogue
from tests.support.documents import (
    Raw,
    document,
    edit,
    node,
    only_problem,
    parsed,
    problem_codes,
    problems,
    verdict,
)


def test_valid_document_has_no_problems() -> None:
    raw = document(
        [node("a", "input"), node("c", "conditional", {"expression": "$a.x > 1"}), node("y")],
        "a>c",
        "c>y:true",
    )

    result = verdict(raw)

    assert result.valid
    assert result.problems == ()
    assert result.outlets == (None, "true")
    assert all(each is not None for each in result.parameters)
    assert result.graph is not None
    assert result.scopes is not None


def test_unparsable_document_has_no_definition() -> None:
    result = validate_document(parse_document("{"), standard_catalogue())

    assert not result.valid
    assert result.definition is None


def test_problems_are_in_document_order() -> None:
    raw = document([node("a", "nope"), node("b", colour=1), edit("c", "{{ 1 + }}")], "a>x", "b>c", stuff=1)

    assert [each.path for each in problems(raw)] == [
        "stuff",
        "nodes[0].type",
        "nodes[1].colour",
        "nodes[2].parameters.assignments[0].value",
        "edges[0].dst",
    ]


class TestIdentity:
    def test_duplicate_ids_are_rejected(self) -> None:
        raw = document([node("a"), node("a"), node("b")], "a>b")
        raw["edges"] = [{"id": "e", "src": "a", "dst": "b"}] * 2

        assert problem_codes(raw) == [
            ("nodes[1].id", codes.DUPLICATE_ID),
            ("edges[1].id", codes.DUPLICATE_ID),
        ]

    def test_edge_to_unknown_node_is_rejected(self) -> None:
        raw = document([node("alpha"), node("beta", dependencies=["gamma"])], "alpha>bet", "x>beta")

        assert problem_codes(raw) == [
            ("nodes[1].dependencies[0]", codes.UNKNOWN_NODE),
            ("edges[0].dst", codes.UNKNOWN_NODE),
            ("edges[1].src", codes.UNKNOWN_NODE),
        ]
        assert "did you mean `beta`?" in [each.hint for each in problems(raw)]

    def test_edge_without_dst_is_reported_once(self) -> None:
        raw = document([node("a")])
        raw["edges"] = [{"src": "a"}]

        assert problem_codes(raw) == [("edges[0]", codes.MISSING_FIELD)]

    def test_self_loop_is_rejected(self) -> None:
        assert problem_codes(document([node("a")], "a>a")) == [("edges[0]", codes.SELF_LOOP)]

    def test_unknown_type_has_hint(self) -> None:
        problem = only_problem(document([node("a", "conditonal")]))

        assert (problem.path, problem.code) == ("nodes[0].type", codes.UNKNOWN_TYPE)
        assert problem.hint == "did you mean `conditional`?"

    def test_node_without_type_is_reported_once(self) -> None:
        assert problem_codes({"nodes": [{"id": "a"}]}) == [("nodes[0]", codes.MISSING_FIELD)]

    def test_reserved_node_id_is_warned(self) -> None:
        assert problem_codes(document([node("json")]), warnings=True) == [
            ("nodes[0].id", codes.RESERVED_NAME)
        ]
        assert problem_codes(document([node("input", "input")]), warnings=True) == []


class TestShape:
    def test_cycle_is_printed_in_message(self) -> None:
        raw = document([node("s"), node("a"), node("b"), node("c")], "s>a", "a>b", "b>c", "c>a")

        cycle = next(each for each in problems(raw) if each.code == codes.CYCLE)

        assert cycle.path == "nodes[1]"
        assert "a → b → c → a" in cycle.message
        assert ("edges", codes.NO_EXIT) in problem_codes(raw)

    def test_node_behind_cycle_is_unreachable(self) -> None:
        raw = document([node("a"), node("b"), node("far")], "a>b", "b>a", "b>far")

        assert problem_codes(raw) == [("nodes[0]", codes.CYCLE), ("nodes[2]", codes.UNREACHABLE_NODE)]

    def test_reference_inside_cycle_is_not_reported(self) -> None:
        raw = document([node("s"), node("a"), edit("b", "$s")], "s>a", "a>b", "b>a")

        assert codes.NOT_AN_ANCESTOR not in [each.code for each in problems(raw)]

    def test_edge_into_trigger_is_rejected(self) -> None:
        assert problem_codes(document([node("a"), node("t", "manual")], "a>t")) == [
            ("edges[0]", codes.TRIGGER_NOT_ENTRY)
        ]
        assert problem_codes(document([node("a"), node("t", trigger=True)], "a>t")) == [
            ("edges[0]", codes.TRIGGER_NOT_ENTRY)
        ]


class TestOutlets:
    def test_router_edge_without_known_outlet_is_rejected(self) -> None:
        raw = document([node("c", "if", {"expression": "true"}), node("x"), node("y")], "c>x", "c>y:tru")

        assert problem_codes(raw) == [("edges[0]", codes.NO_OUTLET), ("edges[1].label", codes.UNKNOWN_OUTLET)]

    def test_route_to_unknown_edge_is_rejected(self) -> None:
        raw = document(
            [
                node("c", "if", {"expression": "true", "true_edge_id": "c-x", "false_edge_id": "gone"}),
                node("x"),
            ],
            "c>x",
        )

        assert problem_codes(raw) == [("nodes[0].parameters.false_edge_id", codes.UNKNOWN_EDGE)]
        assert verdict(raw).outlets == ("true",)

    def test_conflicting_route_and_label_is_rejected(self) -> None:
        parameters = {"expression": "true", "true_edge_id": "c-x"}

        assert problem_codes(document([node("c", "if", parameters), node("x")], "c>x:false")) == [
            ("edges[0].label", codes.CONFLICT)
        ]
        assert problem_codes(document([node("c", "if", parameters), node("x")], "c>x:Yes")) == []

    def test_switch_has_outlet_per_rule_and_fallback(self) -> None:
        rules = {"rules": [{"value": 1, "compare": 1}, {"value": 2, "compare": 2}]}
        raw = document(
            [node("s", "switch", rules), node("x")], "s>x:case_0", "s>x:case_1", "s>x:fallback", "s>x:case_2"
        )

        assert problem_codes(raw) == [("edges[3].label", codes.UNKNOWN_OUTLET)]

    def test_error_edge_needs_no_outlet(self) -> None:
        raw = document([node("c", "if", {"expression": "true"}, error="branch"), node("x")], "c>x!")

        assert problems(raw) == []

    def test_trigger_edge_needs_no_outlet(self) -> None:
        raw = document([node("c", "if", {"expression": "true"}, trigger=True), node("x")], "c>x")

        assert problem_codes(raw) == []

    @pytest.mark.parametrize("label", ["true", "error"])
    def test_outlet_label_on_plain_node_is_warned(self, label: str) -> None:
        raw = document([node("a"), node("b"), node("c")], f"a>b:{label}", "a>c:then")

        assert problem_codes(raw, warnings=True) == [("edges[0].label", codes.UNUSED_LABEL)]


class TestParameters:
    def test_bad_parameters_are_reported_at_their_path(self) -> None:
        raw = document([node("m", "merge", {"wait_mode": "wait_for_ever", "mod": 1})])

        assert problem_codes(raw) == [
            ("nodes[0].parameters.mod", codes.UNKNOWN_PARAMETER),
            ("nodes[0].parameters.wait_mode", codes.BAD_PARAMETER),
        ]

    def test_expression_is_accepted_for_any_parameter_type(self) -> None:
        raw = document(
            [node("a", "input"), node("w", "wait", {"amount": "{{ $a.n }}", "unit": "$a.unit"})], "a>w"
        )

        assert problems(raw) == []

    def test_problem_without_path_is_reported_at_parameters(self) -> None:
        odd = NodeType(
            name="odd", check=lambda parameters, dynamic: (Problem("", codes.BAD_PARAMETER, "odd"),)
        )

        assert [each.path for each in validate(parsed(document([node("a", "odd")])), {"odd": odd})] == [
            "nodes[0].parameters"
        ]


class TestExpressions:
    def test_each_malformed_expression_is_reported(self) -> None:
        assignments = [{"name": "a", "value": "{{ 1 + }}"}, {"name": "b", "value": "{{ $gone.x }}"}]
        raw = document(
            [
                node("e", "edit", {"mode": "keep_only", "assignments": assignments}),
                node("c", "if", {"expression": "1 +"}),
                node("h", "http", {"url": "{{", "headers": {"X-A": "{{ ) }}"}, "method": "GET"}),
                node("s", "switch", {"rules": [{"value": "{{ 1 + }}"}]}),
            ]
        )

        paths = [path for path, code in problem_codes(raw) if code == codes.BAD_EXPRESSION]

        assert "nodes[0].parameters.assignments[0].value" in paths
        assert "nodes[0].parameters.assignments[1].value" in paths
        assert "nodes[1].parameters.expression" in paths
        assert "nodes[2].parameters.headers.X-A" in paths
        assert "nodes[3].parameters.rules[0].value" in paths

    def test_reference_to_non_ancestor_is_rejected(self) -> None:
        raw = document(
            [node("a"), edit("left", 1), edit("right", "{{ $left.k + $left.j }}")], "a>left", "a>right"
        )

        problem = only_problem(raw)

        assert (problem.path, problem.code) == (
            "nodes[2].parameters.assignments[0].value",
            codes.NOT_AN_ANCESTOR,
        )
        assert "`$left`" in problem.message

    def test_reference_to_descendant_with_default_is_rejected(self) -> None:
        raw = document([edit("a", "{{ $b.k ?? 1 }}"), node("b")], "a>b")

        assert problem_codes(raw) == [("nodes[0].parameters.assignments[0].value", codes.NOT_AN_ANCESTOR)]

    def test_reference_to_own_output_is_rejected(self) -> None:
        problem = only_problem(document([edit("a", "$a.k")]))

        assert problem.code == codes.NOT_AN_ANCESTOR
        assert "its own output" in problem.message

    def test_reference_by_node_name_is_accepted(self) -> None:
        raw = document([node("a", name="Fetch it"), edit("b", '{{ $node["Fetch it"].x }}')], "a>b")

        assert problems(raw) == []

    def test_reference_in_expression_parameter_is_checked(self) -> None:
        raw = document([node("a"), node("c", "if", {"expression": "$d.x"}), node("d")], "a>c", "a>d")

        assert problem_codes(raw) == [("nodes[1].parameters.expression", codes.NOT_AN_ANCESTOR)]

    def test_literal_parameter_is_not_checked_for_references(self) -> None:
        schema = {"json_schema": {"title": "$z"}, "model": "m", "prompt": "{{ $z }}", "base_url": "http://x"}
        raw = document([node("a", "llm_service", schema), node("z")], "a>z")

        assert problem_codes(raw) == [("nodes[0].parameters.prompt", codes.NOT_AN_ANCESTOR)]


def split_document(*body: Raw, pairs: tuple[str, ...] = ()) -> Raw:
    first = body[0]["id"]
    nodes = [
        node("t", "input"),
        node("s", "split", {"input_array": "$trigger.xs"}),
        *body,
        node("g", "aggregator"),
        edit("z", "$g"),
    ]
    return document(nodes, "t>s", f"s>{first}", f"{body[-1]['id']}>g", "g>z", *pairs)


class TestItems:
    def test_item_outside_split_is_rejected(self) -> None:
        assert problems(split_document(edit("x", "{{ $item + $index }}"))) == []
        assert problem_codes(document([edit("a", "{{ $item + $index }}")])) == [
            ("nodes[0].parameters.assignments[0].value", codes.NO_ITEM),
            ("nodes[0].parameters.assignments[0].value", codes.NO_ITEM),
        ]

    def test_per_element_node_binds_item(self) -> None:
        filtered = {"input_array": "$trigger", "expression": "$item > 1"}
        edited = {"assignments": [{"name": "n", "value": "$index"}]}

        assert problems(document([node("f", "filter", filtered), node("e", "edit", edited)], "f>e")) == []

    def test_per_element_node_does_not_bind_item_in_other_parameters(self) -> None:
        raw = document([node("f", "filter", {"input_array": "$item", "expression": "$item > 1"})])

        assert problem_codes(raw) == [("nodes[0].parameters.input_array", codes.NO_ITEM)]

    def test_item_in_node_with_bad_parameters_is_not_reported(self) -> None:
        raw = document([node("e", "edit", {"mode": "odd", "assignments": [{"name": "n", "value": "$item"}]})])

        assert problem_codes(raw) == [("nodes[0].parameters.mode", codes.BAD_PARAMETER)]

    def test_reference_to_inner_node_after_aggregator_is_rejected(self) -> None:
        raw = split_document(edit("x", "$item"))
        raw["nodes"].append(edit("late", "$x"))
        raw["edges"].append({"src": "z", "dst": "late"})

        problem = only_problem(raw)

        assert (problem.path, problem.code) == (
            "nodes[5].parameters.assignments[0].value",
            codes.OUT_OF_SCOPE,
        )
        assert "`$g`" in problem.hint

    def test_inner_outputs_without_aggregator_are_visible_only_inside(self) -> None:
        nodes = [node("s", "split", {"input_array": []}), edit("x", "$item"), edit("r", "$x")]
        raw = document(nodes, "s>x", "s>r!", "x>r")

        assert codes.SCOPES_MEET in [each.code for each in problems(raw)]
        raw = document([*nodes[:2], edit("y", "{{ $x.k + $s }}")], "s>x", "x>y")
        assert problems(raw) == []

    def test_outer_outputs_are_visible_in_inner_scopes(self) -> None:
        nodes = [
            edit("a", 1),
            node("s", "split", {"input_array": "$a.k"}),
            edit("b", "$a.k"),
            node("t", "split", {"input_array": "$b.k"}),
            edit("c", "{{ $a.k + $b.k + $item }}"),
            node("h", "aggregator"),
            node("g", "aggregator"),
        ]

        assert problems(document(nodes, "a>s", "s>b", "b>t", "t>c", "c>h", "h>g")) == []

    def test_reference_to_sibling_inside_split_is_rejected(self) -> None:
        nodes = [
            node("s", "split", {"input_array": []}),
            edit("x", 1),
            node("t", "split", {"input_array": []}),
            edit("y", "$u"),
            node("h", "aggregator"),
            node("u"),
        ]
        raw = document(nodes, "s>x", "x>t", "t>y", "y>h", "t>u")
        raw["nodes"].append(edit("w", "$u"))
        raw["edges"].append({"src": "h", "dst": "w"})

        assert ("nodes[6].parameters.assignments[0].value", codes.NOT_AN_ANCESTOR) in problem_codes(raw)


class TestPolicies:
    def test_unknown_or_foreign_error_edge_is_rejected(self) -> None:
        branch = {"type": "branch", "error_edge": "a-b"}

        missing = only_problem(document([node("a", error={"type": "branch", "error_edge": "none"})]))
        assert (missing.path, missing.code) == ("nodes[0].error.error_edge", codes.UNKNOWN_EDGE)
        raw = document([node("a"), node("b", error=branch)], "a>b")
        assert "from `a` to `b`" in next(
            each.message for each in problems(raw) if each.code == codes.UNKNOWN_EDGE
        )

    def test_unused_error_edge_is_warned(self) -> None:
        raw = document([node("a"), node("b"), node("c")], "a>b", "a>c!", "c>b")

        assert verdict(raw).valid
        assert problem_codes(raw, warnings=True) == [
            ("nodes[2]", codes.NEVER_RUNS),
            ("edges[1]", codes.UNUSED_ERROR_EDGE),
        ]

    def test_chain_that_never_runs_is_warned_once(self) -> None:
        raw = document([node("a"), node("c"), node("d")], "a>c!", "c>d")

        assert [code for _, code in problem_codes(raw, warnings=True)].count(codes.NEVER_RUNS) == 1

    def test_join_with_single_in_edge_is_warned(self) -> None:
        raw = document([node("a"), node("b", join="any")], "a>b")
        several = document([node("a"), node("b"), node("c", join="any")], "a>c", "b>c")

        assert problem_codes(raw, warnings=True) == [("nodes[1].join", codes.NO_EFFECT)]
        assert problems(several) == []

    def test_join_conflicting_with_type_is_rejected(self) -> None:
        merge = node("m", "merge", {"wait_mode": "wait_for_any"}, join="all")
        aggregated = split_document(edit("x", 1))
        aggregated["nodes"][3]["join"] = "any"

        assert problem_codes(document([node("a"), node("b"), merge], "a>m", "b>m")) == [
            ("nodes[2].join", codes.JOIN_CONFLICT)
        ]
        assert problem_codes(aggregated) == [("nodes[3].join", codes.JOIN_CONFLICT)]

    def test_timeout_of_a_wait_for_a_time_is_warned(self) -> None:
        raw = document(
            [
                node("t", "input"),
                node("nap", "wait", {"amount": 8}, timeout=2),
                node("ask", "wait", {"resume": "signal"}, timeout=2),
            ],
            "t>nap",
            "nap>ask",
        )

        assert problem_codes(raw, warnings=True) == [("nodes[1].timeout", codes.NO_EFFECT)]

    def test_timeout_of_a_node_that_joins_is_warned_with_the_parameter_that_counts(self) -> None:
        raw = document(
            [
                node("t", "input"),
                node("s", "split", {"input_array": [1]}),
                node("i", "noop"),
                node("all", "aggregator", timeout=2),
                node("m", "merge", {"timeout": 3}, timeout=2),
            ],
            "t>s",
            "s>i",
            "i>all",
            "all>m",
        )

        found = validate(parsed(raw), standard_catalogue())
        warned = [each for each in found if each.code == codes.NO_EFFECT]
        assert [each.path for each in warned] == ["nodes[3].timeout", "nodes[4].timeout"]
        assert all("`parameters.timeout`" in each.message for each in warned)

    def test_fields_without_effect_are_warned(self) -> None:
        raw = document(
            [
                node("t", "input", timeout=5, at_most_once=True),
                node("u", "manual", retry={"max_attempts": 2}),
                edit("a", 1, at_most_once=True, credentials="x"),
                node("h", "http", {"url": "x"}, at_most_once=True, credentials="x", timeout=3),
                node("m", "merge", {"cancel_losers": True}),
            ],
            "t>a",
            "u>h",
            "a>m",
            "h>m",
        )

        assert problem_codes(raw, warnings=True) == [
            ("nodes[0].at_most_once", codes.NO_EFFECT),
            ("nodes[0].timeout", codes.NO_EFFECT),
            ("nodes[1].retry", codes.NO_EFFECT),
            ("nodes[2].at_most_once", codes.NO_EFFECT),
            ("nodes[2].credentials", codes.NO_EFFECT),
            ("nodes[4].parameters.cancel_losers", codes.NO_EFFECT),
        ]


class TestJoins:
    @staticmethod
    def merged(count: int, *pairs: str) -> list[tuple[str, str]]:
        nodes = [
            node("t", "input"),
            node("c", "if", {"expression": "true"}),
            node("x"),
            node("y"),
            node("z"),
            node("m", "merge", {"wait_mode": {"at_least": count}}),
        ]
        return problem_codes(document(nodes, *pairs), warnings=True)

    def test_quorum_above_edge_count_is_warned(self) -> None:
        pairs = ("t>x", "t>y", "x>m", "y>m")

        assert self.merged(2, *pairs) == []
        assert self.merged(3, *pairs) == [("nodes[5].parameters.wait_mode", codes.JOIN_NEVER_OPENS)]

    def test_quorum_over_exclusive_branches_is_warned(self) -> None:
        pairs = ("t>c", "c>x:true", "c>y:false", "x>m", "y>m")

        assert self.merged(1, *pairs) == []
        assert self.merged(2, *pairs) == [("nodes[5].parameters.wait_mode", codes.JOIN_NEVER_OPENS)]

    def test_quorum_counts_branch_beside_router(self) -> None:
        pairs = ("t>c", "c>x:true", "c>y:false", "x>m", "y>m", "t>z", "z>m")

        assert self.merged(2, *pairs) == []

    def test_quorum_over_direct_router_edges_is_warned(self) -> None:
        pairs = ("t>c", "c>m:true", "c>m:false")

        assert self.merged(2, *pairs) == [("nodes[5].parameters.wait_mode", codes.JOIN_NEVER_OPENS)]

    def test_quorum_over_independent_entries_is_accepted(self) -> None:
        assert self.merged(3, "x>m", "y>m", "z>m") == []


class TestOutputs:
    @staticmethod
    def outputs(*pairs: str, **more: Any) -> list[tuple[str, str]]:
        nodes = [
            node("t", "input"),
            node("c", "if", {"expression": "true"}, **more),
            node("x"),
            node("o", "output"),
            node("p", "output"),
        ]
        return problem_codes(document(nodes, *pairs))

    def test_two_outputs_that_both_run_are_rejected(self) -> None:
        assert self.outputs("t>o", "t>p") == [("nodes[4]", codes.TWO_OUTPUTS)]

    def test_outputs_of_two_entries_are_rejected(self) -> None:
        assert self.outputs("t>o", "c>p:true") == [("nodes[4]", codes.TWO_OUTPUTS)]

    def test_consecutive_outputs_are_rejected(self) -> None:
        assert self.outputs("t>p", "p>o") == [("nodes[4]", codes.TWO_OUTPUTS)]

    def test_outputs_of_different_outlets_are_accepted(self) -> None:
        assert self.outputs("t>c", "c>o:true", "c>p:false") == []
        assert self.outputs("t>c", "c>x:true", "x>o", "c>p:false") == []

    def test_outputs_of_same_outlet_are_rejected(self) -> None:
        assert self.outputs("t>c", "c>o:true", "c>p:true") == [("nodes[4]", codes.TWO_OUTPUTS)]

    def test_output_with_path_around_router_is_rejected(self) -> None:
        assert self.outputs("t>c", "c>o:true", "c>p:false", "t>p") == [("nodes[4]", codes.TWO_OUTPUTS)]

    def test_outputs_after_rejoined_branches_are_rejected(self) -> None:
        pairs = ("t>c", "c>x:true", "c>x:false", "x>o", "x>p")

        assert self.outputs(*pairs) == [("nodes[4]", codes.TWO_OUTPUTS)]

    def test_outputs_of_success_and_error_edge_are_accepted(self) -> None:
        assert self.outputs("t>c", "c>o:true", "c>p!", error="branch") == []

    def test_outputs_below_router_of_unknown_type_are_not_reported(self) -> None:
        nodes = [node("r", "swtch"), node("o", "output"), node("p", "output")]

        assert problem_codes(document(nodes, "r>o:case_0", "r>p:fallback")) == [
            ("nodes[0].type", codes.UNKNOWN_TYPE)
        ]

    def test_three_outputs_are_checked_pairwise(self) -> None:
        rules = {"rules": [{"value": 1}, {"value": 2}]}
        nodes = [node("s", "switch", rules), *(node(each, "output") for each in "abc")]
        raw = document(nodes, "s>a:case_0", "s>b:case_1", "s>c:fallback")

        assert problem_codes(raw) == []
        raw["edges"][2]["label"] = "case_0"
        assert problem_codes(raw) == [("nodes[3]", codes.TWO_OUTPUTS)]


def test_input_schema_is_checked_by_given_callback() -> None:
    raw = document([node("a")], inputs={"type": "odd"})

    result = validate_document(
        parsed(raw),
        standard_catalogue(),
        check_schema=lambda schema: [Problem("inputs", codes.BAD_SCHEMA, str(schema))],
    )

    assert [each.path for each in result.problems] == ["inputs"]
    assert problems(raw) == []


def test_split_depth_limit_is_enforced() -> None:
    raw = document([node("s", "split", {"input_array": []}), node("t", "split", {"input_array": []})], "s>t")

    assert [each.code for each in validate(parsed(raw), standard_catalogue(), Limits(split_depth=1))] == [
        codes.SPLIT_TOO_DEEP
    ]


def test_every_problem_code_has_a_meaning() -> None:
    named = {value for name, value in vars(codes).items() if name.isupper() and isinstance(value, str)}

    assert named == set(codes.MEANINGS)


def test_warning_does_not_make_document_invalid() -> None:
    assert verdict(document([node("a"), node("b", join="any")], "a>b")).valid


def test_two_thousand_nodes_are_validated_within_two_seconds() -> None:
    chain = [node("n0", "input"), *(edit(f"n{at}", f"{{{{ $n{at - 1}.k }}}}") for at in range(1, 2000))]
    raw = json.dumps(document(chain, *(f"n{at}>n{at + 1}" for at in range(1999))))

    started = time.process_time()
    result = validate_document(parse_document(raw), standard_catalogue())

    assert result.valid
    assert time.process_time() - started < 2


VALID_DOCUMENT = split_document(
    edit("x", "{{ $item.n + 1 }}"), node("w", "wait", {"amount": "$item.s"}), pairs=("x>w",)
)
JUNK: list[Any] = [
    None,
    True,
    -1,
    0,
    1e9,
    "",
    "a",
    "{{ $x",
    "$item",
    "branch",
    [],
    [1],
    {},
    {"type": "branch"},
]


def value_paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in nested data."""
    here = [path] if path else []
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return here + [each for key, part in parts for each in value_paths(part, (*path, key))]


@given(
    st.lists(
        st.tuples(st.sampled_from(value_paths(VALID_DOCUMENT)), st.sampled_from(["drop", *JUNK])), max_size=4
    )
)
def test_validation_never_raises_on_mutated_document(
    changes: list[tuple[tuple[Any, ...], Any]],
) -> None:
    raw = copy.deepcopy(VALID_DOCUMENT)
    for path, value in changes:
        place: Any = raw
        try:
            for key in path[:-1]:
                place = place[key]
            if value == "drop":
                del place[path[-1]]
            else:
                place[path[-1]] = copy.deepcopy(value)
        except (KeyError, IndexError, TypeError):
            continue

    result = validate_document(parse_document(msgspec.json.encode(raw)), standard_catalogue())

    for each in result.problems:
        assert each.code in codes.MEANINGS
        assert each.message


def test_unknown_name_beside_a_node_with_an_empty_id_is_a_problem() -> None:
    nodes = [
        {"id": "", "type": "input"},
        {"id": "s", "type": "split", "parameters": {"input_array": "{{ x }}"}},
    ]
    raw = {"id": "w", "nodes": nodes, "edges": [{"id": "e", "src": "", "dst": "s"}]}

    result = validate_document(parse_document(msgspec.json.encode(raw)), standard_catalogue())

    assert {"is empty", "unknown name x at character 4"} <= {each.message for each in result.problems}
