"""Tests of workflows as data: the files, the runner, and the command `rune test`."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from rune.errors import InvalidDocumentError
from rune.testing.cases import Case, load_cases, run_case
from tests.acceptance.conformance.case import Case as ConformanceCase
from tests.acceptance.conformance.case import expand, load
from tests.support.in_process_cli import InProcessCli
from tests.support.paths import EXAMPLE_TESTS, EXAMPLES
from tests.support.whole import WHOLE

FLOW: dict[str, Any] = {
    "id": "quote",
    "nodes": [
        {"id": "start", "type": "input"},
        {"id": "ask", "type": "http", "parameters": {"url": "https://shop.example/{{ $trigger.sku }}"}},
        {"id": "done", "type": "output", "parameters": {"value": "$ask.body"}},
    ],
    "edges": [{"src": "start", "dst": "ask"}, {"src": "ask", "dst": "done"}],
}
ANSWER = {"returns": {"status": 200, "body": 7}}


def case(**fields: Any) -> Case:
    document = fields.pop("document", FLOW)
    return msgspec.convert({"case": "c", "document": document, "input": {"sku": "a"}, **fields}, Case)


def deviations(tmp_path: Path, **fields: Any) -> str:
    return "\n".join(run_case(case(**fields), tmp_path).deviations)


@pytest.fixture
def rune(tmp_path: Path) -> InProcessCli:
    return InProcessCli(tmp_path / "home")


@pytest.mark.parametrize("path", EXAMPLE_TESTS, ids=lambda path: path.parent.name)
def test_tests_of_example_pass(path: Path, rune: InProcessCli) -> None:
    found = rune.json("test", str(path))

    assert found["status"] == "passed"
    assert found["passed"] == len(load_cases(path)) > 1


def convertible(each: ConformanceCase) -> bool:
    """Whether a case needs no server and only fields that tests of users have too."""
    plain = each.document is not None and each.input_text is None and each.input_blob_bytes is None
    return plain and not (each.http or each.smtp or "mails_never" in each.expect)


CASES = [each for each in load() if convertible(each)]


@pytest.mark.parametrize("each", CASES if WHOLE else CASES[::8], ids=lambda each: each.name)
def test_conformance_case_passes_as_a_test(each: ConformanceCase, tmp_path: Path) -> None:
    fields = {"exit_code", "completions", "error_contains" if each.refused else ""}
    made = case(
        document=expand(each.document),
        input=expand(each.input),
        refused=each.refused,
        expect={name: value for name, value in expand(dict(each.expect)).items() if name not in fields},
    )

    assert run_case(made, tmp_path).deviations == ()


@pytest.mark.parametrize(
    ("expect", "deviation"),
    [
        ({"status": "failed"}, 'status is completed, expected "failed"'),
        ({"output": 8}, "output is 7, expected 8"),
        ({"output": True}, "output is 7, expected true"),
        ({"nodes": [{"node_id": "ask", "attempts": 2}]}, "`ask` has attempts 1, expected 2"),
        ({"nodes": [{"node_id": "ask", "status": "failed"}]}, "`ask` is success"),
        ({"nodes": [{"node_id": "ask", "error_code": "TIMEOUT"}]}, "failed with None"),
        ({"nodes": [{"node_id": "ask", "item": "users:1"}]}, "`ask` of item users:1 has no run"),
        ({"runs": {"ask": 2}}, "`ask` succeeded 1 times, expected 2"),
        ({"absent_nodes": ["ask"]}, "`ask` must not run, but is success"),
        ({"absent_nodes": ["aks"]}, "the workflow has no node `aks`: did you mean `ask`?"),
        ({"context": {"$ask": 1}}, "$ask is"),
        ({"context_absent": ["$ask"]}, "the context has $ask"),
        ({"calls": [{"node_id": "ask", "count": 2}]}, "`ask` was called 1 times, expected 2"),
        ({"calls": [{"node_id": "ask", "keys": 0}]}, "`ask` was called under 1 keys, expected 0"),
        (
            {"calls": [{"node_id": "ask", "parameters": {"<subset>": {"method": "PUT"}}}]},
            "no call of `ask` had the parameters",
        ),
        ({"error_contains": ["late"]}, "the error does not contain 'late'"),
    ],
)
def test_wrong_expectation_is_reported(expect: dict[str, Any], deviation: str, tmp_path: Path) -> None:
    found = deviations(tmp_path, mocks={"ask": ANSWER}, expect=expect)

    assert deviation in found


def test_right_expectation_has_no_deviation(tmp_path: Path) -> None:
    expect = {
        "status": ["completed", "failed"],
        "output": "<number>",
        "nodes": [{"node_id": "ask", "status": "success", "attempts": 1}],
        "calls": [
            {"node_id": "ask", "count": 1, "parameters": {"<subset>": {"url": "https://shop.example/a"}}}
        ],
    }

    assert deviations(tmp_path, mocks={"ask": ANSWER}, expect=expect) == ""


def test_node_with_effects_without_a_mock_fails_the_test(tmp_path: Path) -> None:
    assert "`ask` has effects and no mock" in deviations(tmp_path, expect={"status": "completed"})


def test_mock_of_an_unknown_node_fails_the_test(tmp_path: Path) -> None:
    found = deviations(tmp_path, mocks={"aks": ANSWER}, expect={"status": "completed"})

    assert found == "no workflow has a node `aks` to mock: did you mean `ask`?"


def two_levels(**asks: Any) -> dict[str, Any]:
    """A test of users with orders; `ask` is called for each order, `sum` for each user, `last` once."""
    nodes: list[dict[str, Any]] = [
        {"id": "start", "type": "input"},
        {"id": "users", "type": "split", "parameters": {"input_array": "{{ $trigger.users }}"}},
        {"id": "orders", "type": "split", "parameters": {"input_array": "{{ $json }}"}},
        {"id": "ask", "type": "http", "parameters": {"url": "https://shop.example/{{ $json }}"}},
        {"id": "all_orders", "type": "aggregator"},
        {"id": "all_users", "type": "aggregator"},
        {"id": "last", "type": "http", "parameters": {"url": "https://shop.example"}},
    ]
    ids = [each["id"] for each in nodes]
    edges = [{"src": one, "dst": other} for one, other in pairwise(ids)]
    return {
        "document": {"id": "shop", "nodes": nodes, "edges": edges},
        "input": {"users": [["a", "b", "c"], ["d"]]},
        "mocks": {"ask": {"returns": 1}, "last": {"returns": 2}, **asks},
        "expect": {"status": "completed"},
    }


@pytest.mark.parametrize(
    ("node", "item", "reason"),
    [
        ("ask", "3", "`orders` made 3 items, the first is 0"),
        ("ask", "users:0/orders:3", "`orders` made 3 items, the first is 0"),
        ("ask", "users:1/orders:1", "`orders` made 1 item, the first is 0"),
        ("ask", "users:2/orders:0", "`users` made 2 items, the first is 0"),
        ("ask", "orders:1", "items of `ask` are named as in `users:0/orders:0`, or by their position"),
        (
            "ask",
            "users:0/orders:x",
            "items of `ask` are named as in `users:0/orders:0`, or by their position",
        ),
        ("last", "0", "`last` is in no split"),
    ],
)
def test_mock_of_an_item_that_does_not_exist_fails_the_test(
    node: str, item: str, reason: str, tmp_path: Path
) -> None:
    answers = {"returns": 1, "items": {item: {"returns": 5}}}

    found = run_case(case(**two_levels(**{node: answers})), tmp_path).deviations

    shown = repr(int(item) if item.isdecimal() else item)
    assert found == (f"the mock of `{node}` for item {shown} has no effect: {reason}",)


def test_mocks_of_items_that_exist_pass(tmp_path: Path) -> None:
    items = {each: {"returns": 5} for each in ("2", "users:0/orders:1", "users:1/orders:0")}

    assert run_case(case(**two_levels(ask={"returns": 1, "items": items})), tmp_path).deviations == ()


def test_mock_of_an_item_that_all_tests_of_a_file_share_passes(tmp_path: Path) -> None:
    given = two_levels(ask={"returns": 1, "items": {"2": {"returns": 5}}})
    shared = {"document": given["document"], "mocks": given["mocks"]}
    tests = [
        {"case": f"{count} orders", "input": {"users": [list(range(count))]}, "expect": given["expect"]}
        for count in (1, 3)
    ]
    path = tmp_path / "cases.json"
    path.write_text(json.dumps({**shared, "tests": tests}), encoding="utf-8")

    assert [run_case(each, tmp_path).deviations for each in load_cases(path)] == [(), ()]


def test_mock_of_an_item_behind_a_split_that_did_not_run_passes(tmp_path: Path) -> None:
    made = two_levels(ask={"returns": 1, "items": {"7": {"returns": 5}}}) | {"input": {"users": []}}

    assert run_case(case(**made), tmp_path).deviations == ()


def test_mock_of_an_unknown_type_fails_the_test(tmp_path: Path) -> None:
    mock_types = {"htpp": ANSWER}
    found = deviations(tmp_path, mocks={"ask": ANSWER}, mock_types=mock_types, expect={"status": "completed"})

    assert found == "no node type is called `htpp`: did you mean `http`?"


def test_mocks_by_type_fail_take_time_and_return(tmp_path: Path) -> None:
    document = msgspec.convert(msgspec.to_builtins(FLOW), dict[str, Any])
    document["nodes"][1] |= {"timeout": 60, "retry": {"max_attempts": 3}}
    mocks = [{"fails": "HTTP_CONNECT", "times": 1}, {"takes": "10s", "returns": {"body": 1}}]
    expect = {"output": 1, "nodes": [{"node_id": "ask", "attempts": 2}]}

    assert deviations(tmp_path, document=document, mock_types={"http": mocks}, expect=expect) == ""


def test_steps_control_the_execution(tmp_path: Path) -> None:
    document = {
        "id": "two",
        "nodes": [
            {"id": "start", "type": "input"},
            {"id": "ask", "type": "wait", "parameters": {"resume": "signal"}},
            {"id": "check", "type": "fail", "parameters": {"code": "BAD", "message": "bad"}},
        ],
        "edges": [{"src": "start", "dst": "ask"}, {"src": "ask", "dst": "check"}],
    }
    steps: list[dict[str, Any]] = [
        {"start": None},
        {"await": {"waiting": "ask"}},
        {"pause": None, "answers": True},
        {"await": "paused"},
        {"pause": None, "answers": False},
        {"resume": None, "answers": True},
        {"signal": "other", "refused": "UNKNOWN_SIGNAL", "says": ["other"]},
        {"signal": {"name": "ask", "value": 1}, "answers": True},
        {"expect": {"status": "halted", "error": {"<subset>": {"code": "BAD"}}}},
        {"retry": None, "as": "second"},
        {"expect": {"status": "halted", "nodes": [{"node_id": "ask", "output": 1}]}, "as": "second"},
        {"rerun": {"from": "ask"}, "as": "third"},
        {"expect": {"status": "running"}, "as": "third"},
        {"cancel": {"reason": "test"}, "as": "third", "answers": "cancelled"},
        {"await": {"node": "check"}},
    ]

    assert deviations(tmp_path, document=document, steps=steps) == ""


@pytest.mark.parametrize(
    ("again", "keys"), [({"retry": None}, 1), ({"rerun": {"from": "ask"}}, 2)], ids=["retry", "rerun"]
)
def test_retry_keeps_the_idempotency_key_and_rerun_does_not(
    again: dict[str, Any], keys: int, tmp_path: Path
) -> None:
    steps = [
        {"start": None},
        {"expect": {"status": "halted"}},
        {**again, "as": "second"},
        {
            "expect": {"status": "completed", "calls": [{"node_id": "ask", "count": 2, "keys": keys}]},
            "as": "second",
        },
    ]
    mocks = {"ask": [{"fails": "BAD", "times": 1}, ANSWER]}

    assert deviations(tmp_path, mocks=mocks, steps=steps) == ""


@pytest.mark.parametrize(
    ("step", "deviation"),
    [
        ({"expect": {"status": "completed"}}, "step 2: the execution cannot go on: `ask` waits for signal"),
        ({"await": "ended"}, "step 2: 'ended' does not hold without time passing: `ask` waits for signal"),
        ({"signal": "ask", "answers": False}, "step 2: signal returned True, expected False"),
        ({"signal": "ask", "refused": "ENDED"}, "step 2: was accepted and returned True"),
        ({"signal": "other", "refused": "ENDED"}, "step 2: was refused with UNKNOWN_SIGNAL, expected ENDED"),
        ({"cancel": None, "as": "other"}, "step 2: no step has started an execution `other`"),
    ],
)
def test_step_that_deviates_is_named(step: dict[str, Any], deviation: str, tmp_path: Path) -> None:
    document = {
        "id": "one",
        "nodes": [
            {"id": "start", "type": "input"},
            {"id": "ask", "type": "wait", "parameters": {"resume": "signal"}},
        ],
        "edges": [{"src": "start", "dst": "ask"}],
    }

    assert deviation in deviations(tmp_path, document=document, steps=[{"start": None}, step])


def test_input_that_should_be_refused_but_is_not_fails_the_test(tmp_path: Path) -> None:
    found = deviations(tmp_path, mocks={"ask": ANSWER}, refused="input", expect={})

    assert found == "the input was accepted, expected to be refused"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- case: a\n  expect: {}\n", "give either `workflow`, a file, or `document`"),
        ("- case: a\n  workflow: a.yaml\n", "give either `expect` or `steps`"),
        ("- case: a\n  workflow: a.yaml\n  expects: {}\n", "unknown field `expects`"),
        ("- case: a\n  workflow: a.yaml\n  expect: {stats: 1}\n", "unknown field `stats`"),
        (
            "- case: a\n  workflow: a.yaml\n  expect: {}\n  mocks: {b: {return: 1}}\n",
            "unknown field `return`",
        ),
        ("- case: a\n  workflow: a.yaml\n  steps: [{begin: null}]\n", "unknown field `begin`"),
        ("- case: a\n  workflow: a.yaml\n  steps: [{start: null, cancel: null}]\n", "a step has one action"),
        ("- case: a\n  workflow: a.yaml\n  steps: [{advance: soon}]\n", "`soon` is not a duration"),
        (
            "- {case: a, workflow: a.yaml, steps: [{start: null}, {expect: {status: halted}, of: b}]}\n",
            "a step with `expect` has no `of`; it may have `expect`, `as`",
        ),
        (
            "- {case: a, workflow: a.yaml, steps: [{advance: 1h, as: b}]}\n",
            "a step with `advance` has no `as`; it may have `advance`",
        ),
        (
            "- {case: a, workflow: a.yaml, steps: [{rerun: {from: ask, items: b}}]}\n",
            "`rerun` has no `items`; it may have `from`, `item`",
        ),
        ("- {case: a, workflow: a.yaml, expect: {}}\n" * 2, "two tests are called `a`"),
        ("tests: 1\n", "Expected `array`"),
        ("1\n", "a file of tests is a test, a list of tests"),
        ("- [\n", "not YAML"),
    ],
)
def test_file_with_a_mistake_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "tests.yaml"
    file.write_text(text)

    with pytest.raises(InvalidDocumentError) as refused:
        load_cases(file)

    assert problem in str(refused.value)


def test_command_prints_failures_writes_junit_and_exits_1(rune: InProcessCli, tmp_path: Path) -> None:
    tests = [
        {"case": "right", "input": {"sku": "a"}, "expect": {"output": 7}},
        {"case": "wrong", "input": {"sku": "a"}, "expect": {"output": 8}},
        {"case": "no sku", "expect": {"output": 8}},
    ]
    file = {"document": FLOW, "mocks": {"ask": ANSWER}, "tests": tests}
    (tmp_path / "test_quote.json").write_text(json.dumps(file))
    (tmp_path / "other.json").write_text("{}")

    result = rune("test", str(tmp_path), "--junit", str(tmp_path / "junit.xml"))

    assert result.exit_code == 1
    assert "✓ right" in result.stdout
    assert "✗ wrong" in result.stdout
    assert "    output is 7, expected 8" in result.stdout
    assert "    the execution is halted: " in result.stdout
    assert "3 tests: 1 passed, 2 failed" in result.stdout
    report = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert [each.get("name") for each in report.iter("testcase") if each.find("failure") is None] == ["right"]
    assert rune("test", str(tmp_path), "-k", "right").exit_code == 0


def test_command_refuses_files_that_are_no_tests(rune: InProcessCli, tmp_path: Path) -> None:
    approval = str(EXAMPLES / "approval" / "approval.yaml")

    found = rune.json("test", approval, str(tmp_path / "none.yaml"), code=2)

    assert {each["file"] for each in found["problems"]} == {approval, str(tmp_path / "none.yaml")}
    assert rune("test", str(tmp_path)).exit_code == 2


def test_command_runs_custom_nodes(
    rune: InProcessCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "custom-nodes" / "src"))
    tests = [
        {
            "case": "notice",
            "workflow": str(EXAMPLES / "custom-nodes" / "notice.yaml"),
            "input": {"title": "Big News", "lines": ["one"]},
            "strict": False,
            "expect": {"status": "completed", "output": {"<subset>": {"file": "big-news.txt"}}},
        }
    ]
    (tmp_path / "tests.json").write_text(json.dumps(tests))

    assert rune.json("test", str(tmp_path), "--nodes", "acme_nodes")["passed"] == 1


def parent(**fields: Any) -> dict[str, Any]:
    """A workflow that starts the workflow `quote` as a child."""
    child = {"id": "child", "type": "workflow", "parameters": {"workflow": "quote"}, **fields}
    return {
        "id": "parent",
        "nodes": [{"id": "start", "type": "input"}, child],
        "edges": [{"src": "start", "dst": "child"}],
    }


def test_child_that_a_retry_starts_again_has_other_idempotency_keys(tmp_path: Path) -> None:
    calls = [{"node_id": "ask", "count": 2, "keys": 2}]
    steps: list[dict[str, Any]] = [
        {"start": None},
        {"expect": {"status": "halted"}},
        {"retry": None},
        {"expect": {"status": "completed", "calls": calls}},
    ]
    mocks = {"ask": [{"fails": "BAD", "times": 1}, ANSWER]}

    assert deviations(tmp_path, document=parent(), workflows=[FLOW], mocks=mocks, steps=steps) == ""


@pytest.mark.parametrize(("codes", "children"), [([], 2), (["TIMEOUT"], 1)], ids=["default", "other codes"])
def test_failed_child_is_retried_as_another_child(codes: list[str], children: int, tmp_path: Path) -> None:
    retry = {"max_attempts": 2, **({"on": codes} if codes else {})}
    expect = {"status": "halted", "calls": [{"node_id": "ask", "count": children, "keys": children}]}

    found = deviations(
        tmp_path,
        document=parent(retry=retry),
        workflows=[FLOW],
        mocks={"ask": {"fails": {"code": "HTTP_STATUS", "message": "404", "permanent": True}}},
        expect=expect,
    )

    assert found == ""
