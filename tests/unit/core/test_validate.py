"""Validation: what a document may not say, told at its place."""

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
from tests.unit.core.documents import Raw, document, found, keep, node, only, parsed, problems, verdict


def test_a_sound_document_has_no_problems_and_is_worked_out() -> None:
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


def test_what_cannot_be_read_is_not_looked_into() -> None:
    result = validate_document(parse_document("{"), standard_catalogue())

    assert not result.valid
    assert result.definition is None


def test_problems_come_in_the_order_of_the_document() -> None:
    raw = document([node("a", "nope"), node("b", colour=1), keep("c", "{{ 1 + }}")], "a>x", "b>c", stuff=1)

    assert [each.path for each in problems(raw)] == [
        "stuff",
        "nodes[0].type",
        "nodes[1].colour",
        "nodes[2].parameters.assignments[0].value",
        "edges[0].dst",
    ]


class TestIdentity:
    def test_ids_are_unique(self) -> None:
        raw = document([node("a"), node("a"), node("b")], "a>b")
        raw["edges"] = [{"id": "e", "src": "a", "dst": "b"}] * 2

        assert found(raw) == [("nodes[1].id", codes.DUPLICATE_ID), ("edges[1].id", codes.DUPLICATE_ID)]

    def test_edges_lead_between_known_nodes(self) -> None:
        raw = document([node("alpha"), node("beta", dependencies=["gamma"])], "alpha>bet", "x>beta")

        assert found(raw) == [
            ("nodes[1].dependencies[0]", codes.UNKNOWN_NODE),
            ("edges[0].dst", codes.UNKNOWN_NODE),
            ("edges[1].src", codes.UNKNOWN_NODE),
        ]
        assert "did you mean `beta`?" in [each.hint for each in problems(raw)]

    def test_a_missing_end_is_reported_once(self) -> None:
        raw = document([node("a")])
        raw["edges"] = [{"src": "a"}]

        assert found(raw) == [("edges[0]", codes.MISSING_FIELD)]

    def test_no_edge_leads_back_to_its_node(self) -> None:
        assert found(document([node("a")], "a>a")) == [("edges[0]", codes.SELF_LOOP)]

    def test_an_unknown_type_is_answered_with_a_near_one(self) -> None:
        problem = only(document([node("a", "conditonal")]))

        assert (problem.path, problem.code) == ("nodes[0].type", codes.UNKNOWN_TYPE)
        assert problem.hint == "did you mean `conditional`?"

    def test_a_node_without_type_is_reported_once(self) -> None:
        assert found({"nodes": [{"id": "a"}]}) == [("nodes[0]", codes.MISSING_FIELD)]

    def test_a_name_with_a_meaning_of_its_own_is_warned_of(self) -> None:
        assert found(document([node("json")]), warnings=True) == [("nodes[0].id", codes.RESERVED_NAME)]
        assert found(document([node("input", "input")]), warnings=True) == []


class TestShape:
    def test_a_cycle_is_printed(self) -> None:
        raw = document([node("s"), node("a"), node("b"), node("c")], "s>a", "a>b", "b>c", "c>a")

        cycle = next(each for each in problems(raw) if each.code == codes.CYCLE)

        assert cycle.path == "nodes[1]"
        assert "a → b → c → a" in cycle.message
        assert ("edges", codes.NO_EXIT) in found(raw)

    def test_what_only_a_cycle_could_reach_is_unreachable(self) -> None:
        raw = document([node("a"), node("b"), node("far")], "a>b", "b>a", "b>far")

        assert found(raw) == [("nodes[0]", codes.CYCLE), ("nodes[2]", codes.UNREACHABLE_NODE)]

    def test_expressions_behind_a_cycle_are_not_blamed_for_it(self) -> None:
        raw = document([node("s"), node("a"), keep("b", "$s")], "s>a", "a>b", "b>a")

        assert codes.NOT_AN_ANCESTOR not in [each.code for each in problems(raw)]

    def test_a_trigger_has_no_in_edges(self) -> None:
        assert found(document([node("a"), node("t", "manual")], "a>t")) == [
            ("edges[0]", codes.TRIGGER_NOT_ENTRY)
        ]
        assert found(document([node("a"), node("t", trigger=True)], "a>t")) == [
            ("edges[0]", codes.TRIGGER_NOT_ENTRY)
        ]


class TestOutlets:
    def test_every_edge_says_which_outlet_it_leaves_by(self) -> None:
        raw = document([node("c", "if", {"expression": "true"}), node("x"), node("y")], "c>x", "c>y:tru")

        assert found(raw) == [("edges[0]", codes.NO_OUTLET), ("edges[1].label", codes.UNKNOWN_OUTLET)]

    def test_routes_name_edges_of_the_node(self) -> None:
        raw = document(
            [
                node("c", "if", {"expression": "true", "true_edge_id": "c-x", "false_edge_id": "gone"}),
                node("x"),
            ],
            "c>x",
        )

        assert found(raw) == [("nodes[0].parameters.false_edge_id", codes.UNKNOWN_EDGE)]
        assert verdict(raw).outlets == ("true",)

    def test_a_route_and_a_label_must_agree(self) -> None:
        parameters = {"expression": "true", "true_edge_id": "c-x"}

        assert found(document([node("c", "if", parameters), node("x")], "c>x:false")) == [
            ("edges[0].label", codes.CONFLICT)
        ]
        assert found(document([node("c", "if", parameters), node("x")], "c>x:Yes")) == []

    def test_a_switch_has_an_outlet_per_rule_and_a_fallback(self) -> None:
        rules = {"rules": [{"value": 1, "compare": 1}, {"value": 2, "compare": 2}]}
        raw = document(
            [node("s", "switch", rules), node("x")], "s>x:case_0", "s>x:case_1", "s>x:fallback", "s>x:case_2"
        )

        assert found(raw) == [("edges[3].label", codes.UNKNOWN_OUTLET)]

    def test_error_edges_need_no_outlet(self) -> None:
        raw = document([node("c", "if", {"expression": "true"}, error="branch"), node("x")], "c>x!")

        assert problems(raw) == []

    def test_a_trigger_does_not_route(self) -> None:
        raw = document([node("c", "if", {"expression": "true"}, trigger=True), node("x")], "c>x")

        assert found(raw) == []

    @pytest.mark.parametrize("label", ["true", "error"])
    def test_a_label_that_looks_like_an_outlet_is_warned_of(self, label: str) -> None:
        raw = document([node("a"), node("b"), node("c")], f"a>b:{label}", "a>c:then")

        assert found(raw, warnings=True) == [("edges[0].label", codes.UNUSED_LABEL)]


class TestParameters:
    def test_misfits_are_reported_with_their_path(self) -> None:
        raw = document([node("m", "merge", {"wait_mode": "wait_for_ever", "mod": 1})])

        assert found(raw) == [
            ("nodes[0].parameters.mod", codes.UNKNOWN_PARAMETER),
            ("nodes[0].parameters.wait_mode", codes.BAD_PARAMETER),
        ]

    def test_an_expression_stands_where_any_type_is_expected(self) -> None:
        raw = document(
            [node("a", "input"), node("w", "wait", {"amount": "{{ $a.n }}", "unit": "$a.unit"})], "a>w"
        )

        assert problems(raw) == []

    def test_a_problem_of_the_parameters_as_a_whole_is_told_there(self) -> None:
        odd = NodeType(
            name="odd", check=lambda parameters, dynamic: (Problem("", codes.BAD_PARAMETER, "odd"),)
        )

        assert [each.path for each in validate(parsed(document([node("a", "odd")])), {"odd": odd})] == [
            "nodes[0].parameters"
        ]


class TestExpressions:
    def test_each_one_that_does_not_parse_is_reported(self) -> None:
        assignments = [{"name": "a", "value": "{{ 1 + }}"}, {"name": "b", "value": "{{ $gone.x }}"}]
        raw = document(
            [
                node("e", "edit", {"mode": "keep_only", "assignments": assignments}),
                node("c", "if", {"expression": "1 +"}),
                node("h", "http", {"url": "{{", "headers": {"X-A": "{{ ) }}"}, "method": "GET"}),
                node("s", "switch", {"rules": [{"value": "{{ 1 + }}"}]}),
            ]
        )

        paths = [path for path, code in found(raw) if code == codes.BAD_EXPRESSION]

        assert "nodes[0].parameters.assignments[0].value" in paths
        assert "nodes[0].parameters.assignments[1].value" in paths
        assert "nodes[1].parameters.expression" in paths
        assert "nodes[2].parameters.headers.X-A" in paths
        assert "nodes[3].parameters.rules[0].value" in paths

    def test_a_reference_names_a_node_that_can_have_run(self) -> None:
        raw = document(
            [node("a"), keep("left", 1), keep("right", "{{ $left.k + $left.j }}")], "a>left", "a>right"
        )

        problem = only(raw)

        assert (problem.path, problem.code) == (
            "nodes[2].parameters.assignments[0].value",
            codes.NOT_AN_ANCESTOR,
        )
        assert "`$left`" in problem.message

    def test_a_default_does_not_excuse_a_node_that_never_runs_before(self) -> None:
        raw = document([keep("a", "{{ $b.k ?? 1 }}"), node("b")], "a>b")

        assert found(raw) == [("nodes[0].parameters.assignments[0].value", codes.NOT_AN_ANCESTOR)]

    def test_no_node_refers_to_itself(self) -> None:
        problem = only(document([keep("a", "$a.k")]))

        assert problem.code == codes.NOT_AN_ANCESTOR
        assert "its own output" in problem.message

    def test_nodes_are_also_found_by_their_name(self) -> None:
        raw = document([node("a", name="Fetch it"), keep("b", '{{ $node["Fetch it"].x }}')], "a>b")

        assert problems(raw) == []

    def test_expression_parameters_are_checked_too(self) -> None:
        raw = document([node("a"), node("c", "if", {"expression": "$d.x"}), node("d")], "a>c", "a>d")

        assert found(raw) == [("nodes[1].parameters.expression", codes.NOT_AN_ANCESTOR)]

    def test_what_is_taken_as_it_stands_holds_no_references(self) -> None:
        schema = {"json_schema": {"title": "$z"}, "model": "m", "prompt": "{{ $z }}", "base_url": "http://x"}
        raw = document([node("a", "llm_service", schema), node("z")], "a>z")

        assert found(raw) == [("nodes[0].parameters.prompt", codes.NOT_AN_ANCESTOR)]


def inside(*body: Raw, pairs: tuple[str, ...] = ()) -> Raw:
    first = body[0]["id"]
    nodes = [
        node("t", "input"),
        node("s", "split", {"input_array": "$trigger.xs"}),
        *body,
        node("g", "aggregator"),
        keep("z", "$g"),
    ]
    return document(nodes, "t>s", f"s>{first}", f"{body[-1]['id']}>g", "g>z", *pairs)


class TestItems:
    def test_the_item_is_known_inside_a_split_only(self) -> None:
        assert problems(inside(keep("x", "{{ $item + $index }}"))) == []
        assert found(document([keep("a", "{{ $item + $index }}")])) == [
            ("nodes[0].parameters.assignments[0].value", codes.NO_ITEM),
            ("nodes[0].parameters.assignments[0].value", codes.NO_ITEM),
        ]

    def test_a_node_that_works_per_element_binds_its_own(self) -> None:
        filtered = {"input_array": "$trigger", "expression": "$item > 1"}
        edited = {"assignments": [{"name": "n", "value": "$index"}]}

        assert problems(document([node("f", "filter", filtered), node("e", "edit", edited)], "f>e")) == []

    def test_but_not_in_its_other_parameters(self) -> None:
        raw = document([node("f", "filter", {"input_array": "$item", "expression": "$item > 1"})])

        assert found(raw) == [("nodes[0].parameters.input_array", codes.NO_ITEM)]

    def test_a_node_whose_parameters_do_not_fit_is_given_the_benefit_of_the_doubt(self) -> None:
        raw = document([node("e", "edit", {"mode": "odd", "assignments": [{"name": "n", "value": "$item"}]})])

        assert found(raw) == [("nodes[0].parameters.mode", codes.BAD_PARAMETER)]

    def test_inner_outputs_do_not_leak(self) -> None:
        raw = inside(keep("x", "$item"))
        raw["nodes"].append(keep("late", "$x"))
        raw["edges"].append({"src": "z", "dst": "late"})

        problem = only(raw)

        assert (problem.path, problem.code) == (
            "nodes[5].parameters.assignments[0].value",
            codes.OUT_OF_SCOPE,
        )
        assert "`$g`" in problem.hint

    def test_nor_where_nothing_gathers_them(self) -> None:
        nodes = [node("s", "split", {"input_array": []}), keep("x", "$item"), keep("r", "$x")]
        raw = document(nodes, "s>x", "s>r!", "x>r")

        assert codes.SCOPES_MEET in [each.code for each in problems(raw)]
        raw = document([*nodes[:2], keep("y", "{{ $x.k + $s }}")], "s>x", "x>y")
        assert problems(raw) == []

    def test_outer_outputs_are_visible_in_inner_scopes(self) -> None:
        nodes = [
            keep("a", 1),
            node("s", "split", {"input_array": "$a.k"}),
            keep("b", "$a.k"),
            node("t", "split", {"input_array": "$b.k"}),
            keep("c", "{{ $a.k + $b.k + $item }}"),
            node("h", "aggregator"),
            node("g", "aggregator"),
        ]

        assert problems(document(nodes, "a>s", "s>b", "b>t", "t>c", "c>h", "h>g")) == []

    def test_an_ungathered_split_is_told_how_to_be_gathered(self) -> None:
        nodes = [
            node("s", "split", {"input_array": []}),
            keep("x", 1),
            node("t", "split", {"input_array": []}),
            keep("y", "$u"),
            node("h", "aggregator"),
            node("u"),
        ]
        raw = document(nodes, "s>x", "x>t", "t>y", "y>h", "t>u")
        raw["nodes"].append(keep("w", "$u"))
        raw["edges"].append({"src": "h", "dst": "w"})

        assert ("nodes[6].parameters.assignments[0].value", codes.NOT_AN_ANCESTOR) in found(raw)


class TestPolicies:
    def test_an_error_edge_exists_and_leaves_the_node(self) -> None:
        branch = {"type": "branch", "error_edge": "a-b"}

        missing = only(document([node("a", error={"type": "branch", "error_edge": "none"})]))
        assert (missing.path, missing.code) == ("nodes[0].error.error_edge", codes.UNKNOWN_EDGE)
        raw = document([node("a"), node("b", error=branch)], "a>b")
        assert "from `a` to `b`" in next(
            each.message for each in problems(raw) if each.code == codes.UNKNOWN_EDGE
        )

    def test_an_error_edge_that_nothing_follows_is_warned_of(self) -> None:
        raw = document([node("a"), node("b"), node("c")], "a>b", "a>c!", "c>b")

        assert verdict(raw).valid
        assert found(raw, warnings=True) == [
            ("nodes[2]", codes.NEVER_RUNS),
            ("edges[1]", codes.UNUSED_ERROR_EDGE),
        ]

    def test_what_never_runs_is_told_once(self) -> None:
        raw = document([node("a"), node("c"), node("d")], "a>c!", "c>d")

        assert [code for _, code in found(raw, warnings=True)].count(codes.NEVER_RUNS) == 1

    def test_join_means_something_with_several_in_edges(self) -> None:
        raw = document([node("a"), node("b", join="any")], "a>b")
        several = document([node("a"), node("b"), node("c", join="any")], "a>c", "b>c")

        assert found(raw, warnings=True) == [("nodes[1].join", codes.NO_EFFECT)]
        assert problems(several) == []

    def test_join_agrees_with_how_the_type_waits(self) -> None:
        merge = node("m", "merge", {"wait_mode": "wait_for_any"}, join="all")
        gather = inside(keep("x", 1))
        gather["nodes"][3]["join"] = "any"

        assert found(document([node("a"), node("b"), merge], "a>m", "b>m")) == [
            ("nodes[2].join", codes.JOIN_CONFLICT)
        ]
        assert found(gather) == [("nodes[3].join", codes.JOIN_CONFLICT)]

    def test_fields_without_effect_are_warned_of(self) -> None:
        raw = document(
            [
                node("t", "input", timeout=5, at_most_once=True),
                node("u", "manual", retry={"max_attempts": 2}),
                keep("a", 1, at_most_once=True, credentials="x"),
                node("h", "http", {"url": "x"}, at_most_once=True, credentials="x", timeout=3),
                node("m", "merge", {"cancel_losers": True}),
            ],
            "t>a",
            "u>h",
            "a>m",
            "h>m",
        )

        assert found(raw, warnings=True) == [
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
        return found(document(nodes, *pairs), warnings=True)

    def test_more_arrivals_than_edges_never_come(self) -> None:
        pairs = ("t>x", "t>y", "x>m", "y>m")

        assert self.merged(2, *pairs) == []
        assert self.merged(3, *pairs) == [("nodes[5].parameters.wait_mode", codes.JOIN_NEVER_OPENS)]

    def test_arms_that_exclude_each_other_never_both_come(self) -> None:
        pairs = ("t>c", "c>x:true", "c>y:false", "x>m", "y>m")

        assert self.merged(1, *pairs) == []
        assert self.merged(2, *pairs) == [("nodes[5].parameters.wait_mode", codes.JOIN_NEVER_OPENS)]

    def test_an_arm_beside_them_counts(self) -> None:
        pairs = ("t>c", "c>x:true", "c>y:false", "x>m", "y>m", "t>z", "z>m")

        assert self.merged(2, *pairs) == []

    def test_edges_straight_from_the_router_exclude_each_other_too(self) -> None:
        pairs = ("t>c", "c>m:true", "c>m:false")

        assert self.merged(2, *pairs) == [("nodes[5].parameters.wait_mode", codes.JOIN_NEVER_OPENS)]

    def test_entries_are_independent(self) -> None:
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
        return found(document(nodes, *pairs))

    def test_two_that_can_both_run_are_refused(self) -> None:
        assert self.outputs("t>o", "t>p") == [("nodes[4]", codes.TWO_OUTPUTS)]

    def test_two_entries_can_both_run(self) -> None:
        assert self.outputs("t>o", "c>p:true") == [("nodes[4]", codes.TWO_OUTPUTS)]

    def test_one_behind_the_other_can_both_run(self) -> None:
        assert self.outputs("t>p", "p>o") == [("nodes[4]", codes.TWO_OUTPUTS)]

    def test_different_outlets_part_them(self) -> None:
        assert self.outputs("t>c", "c>o:true", "c>p:false") == []
        assert self.outputs("t>c", "c>x:true", "x>o", "c>p:false") == []

    def test_one_outlet_does_not(self) -> None:
        assert self.outputs("t>c", "c>o:true", "c>p:true") == [("nodes[4]", codes.TWO_OUTPUTS)]

    def test_a_way_around_the_router_does_not(self) -> None:
        assert self.outputs("t>c", "c>o:true", "c>p:false", "t>p") == [("nodes[4]", codes.TWO_OUTPUTS)]

    def test_what_meets_again_does_not(self) -> None:
        pairs = ("t>c", "c>x:true", "c>x:false", "x>o", "x>p")

        assert self.outputs(*pairs) == [("nodes[4]", codes.TWO_OUTPUTS)]

    def test_success_and_error_part_them(self) -> None:
        assert self.outputs("t>c", "c>o:true", "c>p!", error="branch") == []

    def test_three_are_told_apart(self) -> None:
        rules = {"rules": [{"value": 1}, {"value": 2}]}
        nodes = [node("s", "switch", rules), *(node(each, "output") for each in "abc")]
        raw = document(nodes, "s>a:case_0", "s>b:case_1", "s>c:fallback")

        assert found(raw) == []
        raw["edges"][2]["label"] = "case_0"
        assert found(raw) == [("nodes[3]", codes.TWO_OUTPUTS)]


def test_the_schema_of_the_payload_is_checked_by_whom_it_is_given_to() -> None:
    raw = document([node("a")], inputs={"type": "odd"})

    result = validate_document(
        parsed(raw),
        standard_catalogue(),
        check_schema=lambda schema: [Problem("inputs", codes.BAD_SCHEMA, str(schema))],
    )

    assert [each.path for each in result.problems] == ["inputs"]
    assert problems(raw) == []


def test_limits_reach_the_scopes() -> None:
    raw = document([node("s", "split", {"input_array": []}), node("t", "split", {"input_array": []})], "s>t")

    assert [each.code for each in validate(parsed(raw), standard_catalogue(), Limits(split_depth=1))] == [
        codes.SPLIT_TOO_DEEP
    ]


def test_every_code_has_a_meaning() -> None:
    named = {value for name, value in vars(codes).items() if name.isupper() and isinstance(value, str)}

    assert named == set(codes.MEANINGS)


def test_a_warning_never_makes_a_document_invalid() -> None:
    assert verdict(document([node("a"), node("b", join="any")], "a>b")).valid


def test_two_thousand_nodes_are_checked_in_a_moment() -> None:
    chain = [node("n0", "input"), *(keep(f"n{at}", f"{{{{ $n{at - 1}.k }}}}") for at in range(1, 2000))]
    raw = json.dumps(document(chain, *(f"n{at}>n{at + 1}" for at in range(1999))))

    started = time.process_time()
    result = validate_document(parse_document(raw), standard_catalogue())

    assert result.valid
    assert time.process_time() - started < 2


WHOLE = inside(keep("x", "{{ $item.n + 1 }}"), node("w", "wait", {"amount": "$item.s"}), pairs=("x>w",))
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


def spots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in plain data."""
    here = [path] if path else []
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return here + [each for key, part in parts for each in spots(part, (*path, key))]


@given(st.lists(st.tuples(st.sampled_from(spots(WHOLE)), st.sampled_from(["drop", *JUNK])), max_size=4))
def test_a_mutilated_document_gives_problems_and_never_an_exception(
    changes: list[tuple[tuple[Any, ...], Any]],
) -> None:
    raw = copy.deepcopy(WHOLE)
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
