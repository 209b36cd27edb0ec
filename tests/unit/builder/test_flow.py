"""Workflows built in Python: nodes, edges, splits, composition and custom nodes."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from rune import node as custom
from rune.build import (
    UNSET,
    Handler,
    Retry,
    Settings,
    Workflow,
    aggregator,
    conditional,
    edit,
    http,
    input,
    log,
    node,
    noop,
    output,
    smtp,
    split,
    switch,
    workflow,
)
from rune.build.code_check import check_code
from rune.core.definition.problems import Problem
from rune.errors import InvalidDocumentError
from tests.support.in_process_cli import InProcessCli
from tools.generate_nodes import TARGET, generate


def price_watch() -> Workflow:
    flow = Workflow("price-watch", inputs={"type": "object", "required": ["sku"]})
    with flow:
        start = input("start")
        quote = http("quote", url=f"https://shop.example/{start.out.sku}", retry=Retry(4), timeout=30)
        cheap = conditional("cheap", expression=(quote.out.status == 200) & (quote.out.body.price < 10))
        tell = smtp("tell", to=quote.out.body.contact, subject="Buy now")
        note = log("note", message=f"no quote: {flow.error.message}")
    start >> quote >> cheap
    cheap["true"] >> tell
    quote.on_error >> note
    return flow


def test_settings_name_handlers_and_survive_conversion() -> None:
    tell, given = Workflow("tell-ops"), {"workflow": "tell-ops", "version": "stable"}
    settings = Settings(
        timeout=60,
        callable_by=["shop-*"],
        on_failure=Handler(tell, version="stable", statuses=["failed", "cancelled"]),
        expect_within=7200,
        on_late="tell-ops",
        expect_every=0.5 + 93600,
        on_missing=tell,
    )
    flow = Workflow("nightly", settings=settings)
    with flow:
        input("start")
    assert flow.check() == []
    assert flow.data["settings"] == {
        "timeout": 60,
        "callable_by": ["shop-*"],
        "on_failure": {**given, "statuses": ["failed", "cancelled"]},
        "expect_within": 7200,
        "on_late": "tell-ops",
        "expect_every": 93600.5,
        "on_missing": "tell-ops",
    }
    code = flow.to_python()
    assert "from rune.build import Handler, Settings, Workflow, input" in code
    assert 'on_failure=Handler("tell-ops", version="stable", statuses=["failed", "cancelled"])' in code
    assert "expect_within=7200," in code
    assert 'on_missing="tell-ops"' in code
    check_code(code)
    made: dict[str, Any] = {}
    exec(code, made)
    assert made["flow"] == flow
    assert made["flow"].to_python() == code
    assert Workflow.load(flow.to_yaml()) == flow
    assert Workflow("plain", settings=flow.data["settings"]).data["settings"] == flow.data["settings"]
    refused = Workflow("late", settings=Settings(on_late=Handler("a", statuses=["failed"]), expect_every=0))
    with refused:
        input("start")
    assert [each.path for each in errors(refused)] == ["settings.on_late.statuses", "settings.expect_every"]


def errors(flow: Workflow) -> list[Problem]:
    return [each for each in flow.check() if each.severity == "error"]


def edges(flow: Workflow) -> list[str]:
    return [
        f"{each.src}{f'[{each.label}]' if each.label else ''}{'!' if each.is_error else ''}>{each.dst}"
        for each in flow.edges
    ]


def test_workflow_of_the_documentation_is_valid_and_equals_its_document() -> None:
    written = """
    id: price-watch
    inputs: {type: object, required: [sku]}
    nodes:
      - {id: start, type: input}
      - id: quote
        type: http
        parameters: {url: "https://shop.example/{{ $start.sku }}"}
        retry: {max_attempts: 4}
        timeout: 30
        error: branch
      - {id: cheap, type: conditional, parameters: {expression: "$quote.status == 200 and $quote.body.price < 10"}}
      - {id: tell, type: smtp, parameters: {to: $quote.body.contact, subject: Buy now}}
      - {id: note, type: log, parameters: {message: "no quote: {{ $error.message }}"}}
    edges:
      - {src: start, dst: quote}
      - {src: quote, dst: cheap}
      - {src: cheap, dst: tell, label: "true"}
      - {src: quote, dst: note, is_error: true}
    """

    assert errors(price_watch()) == []
    assert price_watch() == Workflow.load(written)
    assert price_watch().hash == Workflow.load(written).hash


def test_edges_lead_from_and_to_lists_outlets_and_named_outlets() -> None:
    flow = Workflow("edges")
    with flow:
        a, b, c, d = (noop(name) for name in "abcd")
        pick = switch("pick", rules=[{"value": 1, "compare": 1}])
    a >> [b, c] >> d >> pick
    pick.case(0) >> (last := flow.add(type(a)(flow, {"id": "last", "type": "noop"})))
    pick.fallback.named("else") >> last

    assert edges(flow) == ["a>b", "a>c", "b>d", "c>d", "d>pick", "pick[case_0]>last", "pick[fallback]>last"]
    assert flow.data["edges"][-1]["id"] == "else"


def test_on_error_gives_the_node_an_error_policy_unless_it_has_one() -> None:
    flow = Workflow("errors")
    with flow:
        a = noop("a")
        b = noop("b", error="ignore")
        c = noop("c")
    a.on_error >> c
    b.on_error >> c

    assert a.data["error"] == "branch"
    assert b.data["error"] == "ignore"


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda flow: noop("a") >> "b", TypeError, "leads to a node, not str"),
        (lambda flow: noop("a") >> noop("b")["true"], TypeError, "an outlet can only be on the left"),
        (lambda flow: [1] >> noop("a"), TypeError, "leaves a node or an outlet, not int"),
        (lambda flow: (noop("a"), noop("a")), ValueError, "has a node `a` already"),
        (lambda flow: noop("a", tiemout=3), TypeError, "no parameter `tiemout`"),  # type: ignore[call-arg]
        (lambda flow: noop("a") >> price_watch()["start"], ValueError, "belongs to another workflow"),
        (lambda flow: list(noop("a")), TypeError, "its output is `.out`"),
        (lambda flow: flow["ghost"], KeyError, "no node `ghost`"),
    ],
)
def test_mistake_in_building_raises_at_once(build: Any, error: type[Exception], message: str) -> None:
    flow = Workflow("mistakes")
    with flow, pytest.raises(error, match=message):
        build(flow)


def test_node_outside_of_a_workflow_raises() -> None:
    with pytest.raises(RuntimeError, match="write `with flow:` around it"):
        noop("a")


def test_mention_of_a_node_makes_no_edge_and_check_names_what_is_missing() -> None:
    flow = Workflow("mention")
    with flow:
        start = input("start")
        one = edit("one", mode="keep_only", assignments=[{"name": "k", "value": start.out.x}])
        two = log("two", message=f"{one.out.k} {start.out.x}")

    assert [each.code for each in errors(flow)] == ["NOT_AN_ANCESTOR"] * 3
    assert [repr(each) for each in flow.connect_references()] == [
        "<Edge start >> one>",
        "<Edge one >> two>",
        "<Edge start >> two>",
    ]
    assert errors(flow) == []
    assert two.id in flow


def test_split_block_gives_the_item_and_collects_its_body() -> None:
    flow = Workflow("each")
    with flow:
        start = input("start")
        with (users := split("users", input_array=start.out.users, max_in_flight=4)) as user:
            name = edit("name", mode="keep_only", assignments=[{"name": "n", "value": user.name}])
        every = aggregator("every")
    start >> users >> name >> every

    assert users.body == [name]
    assert name.parameters["assignments"][0]["value"] == "$item.name"
    assert errors(flow) == []


def test_use_copies_a_workflow_with_prefixed_ids_references_and_edges() -> None:
    flow = Workflow("both")
    with flow:
        start = input("begin")
    parts = flow.use(price_watch(), prefix="eu_")
    start >> parts["quote"]

    assert parts["cheap"].parameters["expression"] == "$eu_quote.status == 200 and $eu_quote.body.price < 10"
    assert parts["quote"].parameters["url"] == "https://shop.example/{{ $eu_start.sku }}"
    assert "eu_quote!>eu_note" in edges(flow)
    assert errors(flow) == []
    assert "quote" in price_watch()


def test_rename_changes_references_and_keeps_the_node_object() -> None:
    flow = price_watch()
    quote = flow["quote"]

    flow.rename("quote", "price")

    assert flow["price"] is quote
    assert flow["tell"].parameters["to"] == "$price.body.contact"
    assert errors(flow) == []


def test_remove_takes_the_edges_along() -> None:
    flow = price_watch()

    flow.remove("cheap")

    assert edges(flow) == ["start>quote", "quote!>note"]


def test_set_changes_and_removes_parameters() -> None:
    flow = price_watch()

    flow["tell"].set(subject="Sell", to=UNSET)

    assert flow["tell"].parameters == {"subject": "Sell"}


def test_diff_names_what_changed() -> None:
    changed = price_watch()
    changed["quote"].data["timeout"] = 60

    (change,) = price_watch().diff(changed)

    assert (change.what, change.id, change.kind) == ("node", "quote", "changed")
    assert [(each.path, each.before, each.after) for each in change.fields] == [("timeout", 30.0, 60.0)]
    assert price_watch() != changed


def test_hash_of_invalid_workflow_raises_with_problems() -> None:
    flow = Workflow("bad")
    with flow:
        node("a", "", {"x": 1})

    with pytest.raises(InvalidDocumentError, match="is empty"):
        _ = flow.hash


def test_parameter_with_the_name_of_a_common_field_has_an_underscore() -> None:
    flow = Workflow("names")
    with flow:
        made = http("a", url="https://a.example", timeout_=5, timeout=20, retry=Retry(2))
        child = workflow("b", workflow="price-line", input={"x": 1})

    assert made.parameters["timeout"] == 5
    assert made.data["timeout"] == 20
    assert child.parameters == {"workflow": "price-line", "input": {"x": 1}}


@custom("tests.score", effectful=False)
def score(customer: str, weight: float = 1.0) -> dict[str, Any]:
    """Scores a customer."""
    return {"score": len(customer) * weight}


@custom("tests.score_later")
async def score_later(customer: str) -> dict[str, Any]:
    """Scores a customer in the event loop."""
    return {"score": float(len(customer))}


def test_custom_node_is_placed_with_node_and_stays_a_function() -> None:
    flow = Workflow("custom")
    with flow:
        start = input("start")
        made = score.node("rating", customer=start.out.id, timeout=3)
        done = output("done", value=made.out)
    start >> made >> done

    assert score("abc", weight=2) == {"score": 6}
    assert made.data == {
        "id": "rating",
        "type": "tests.score",
        "parameters": {"customer": "$start.id"},
        "timeout": 3,
    }
    assert errors(flow) == []
    assert flow.run({"id": "abcd"}).output == {"score": 4.0}


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"customer": "a", "wight": 1}, "no parameter `wight`; its parameters: `customer`"),
        ({}, "needs the parameter"),
    ],
)
def test_custom_node_with_wrong_parameters_raises(keywords: dict[str, Any], message: str) -> None:
    with Workflow("custom"), pytest.raises(TypeError, match=message):
        score.node("rating", **keywords)


def test_call_with_an_id_in_an_open_workflow_places_a_custom_node() -> None:
    flow = Workflow("custom")
    with flow:
        start = input("start")
        rated = score("rating", customer=start.out.id, timeout=3)
        later = score_later("later", customer=start.out.id)
        with pytest.raises(TypeError, match="no parameter `wight`; its parameters: `customer`"):
            score("other", customer="a", wight=1)
    start >> rated >> later

    assert [each.data for each in (rated, later)] == [
        {"id": "rating", "type": "tests.score", "parameters": {"customer": "$start.id"}, "timeout": 3},
        {"id": "later", "type": "tests.score_later", "parameters": {"customer": "$start.id"}},
    ]
    assert flow.run({"id": "abcd"})["rating"].output == {"score": 4.0}


def test_other_calls_of_a_custom_node_stay_calls_of_the_function() -> None:
    flow = Workflow("custom")

    assert score("abc") == {"score": 3.0}
    with flow:
        assert score(customer="abc") == {"score": 3.0}
    assert asyncio.run(score_later("abc")) == {"score": 3.0}

    assert list(flow) == []


@custom("tests.of_score", effectful=False)
def of_score(customer: str) -> dict[str, Any]:
    """Calls another custom node as a function."""
    return score(customer)


def test_custom_node_that_runs_inside_of_an_open_workflow_calls_functions() -> None:
    flow = Workflow("custom")
    with flow:
        start = input("start")
        rated = of_score("rating", customer=start.out.id)
        start >> rated

        assert flow.run({"id": "abcd"}).output == {"rating": {"score": 4.0}}

    assert [each.id for each in flow] == ["start", "rating"]


TASKS = """
from rune.build import Workflow, input

flow = Workflow("shop")
with flow:
    fetch = input("fetch")


@flow.task
def total(lines: list[int] = fetch.out.lines) -> dict[str, int]:
    return {"total": sum(lines)}
"""


def test_task_of_a_module_is_a_node_type_that_workers_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_tasks.py").write_text(TASKS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("shop_tasks")
    monkeypatch.delitem(sys.modules, "shop_tasks")
    path = tmp_path / "shop.yaml"
    module.flow.save(path)
    rune = InProcessCli(tmp_path / "home")

    found = rune.json("run", str(path), "--input", '{"lines": [1, 2]}', "--nodes", "shop_tasks")

    assert (module.flow["total"].type, module.flow.local_tasks) == ("shop_tasks.total", [])
    assert (found["status"], found["output"]) == ("completed", {"total": {"total": 3}})
    assert "shop_tasks.total" in rune("run", str(path)).output
    assert module.total([4]) == {"total": 4}


def test_task_is_wired_by_its_defaults_and_runs_on_the_spot() -> None:
    flow = Workflow("tasks")
    with flow:
        fetch = input("fetch")

    @flow.task
    def total(lines: list[int] = fetch.out.lines, factor: int = 2) -> dict[str, int]:  # type: ignore[assignment]
        return {"total": sum(lines) * factor}

    assert edges(flow) == ["fetch>total"]
    assert flow["total"].parameters == {"lines": "$fetch.lines"}
    assert flow.run({"lines": [1, 2]}).output == {"total": {"total": 6}}
    assert total([5]) == {"total": 10}
    assert flow.local_tasks == ["total"]


def test_task_with_an_argument_without_default_is_refused() -> None:
    flow = Workflow("tasks")

    with pytest.raises(TypeError, match="`lines` has no default; write the reference"):

        @flow.task
        def total(lines: list[int]) -> int:
            return sum(lines)


def test_saved_workflow_is_loaded_again_from_every_format(tmp_path: Path) -> None:
    for suffix in ("yaml", "json", "py"):
        path = tmp_path / f"flow.{suffix}"
        price_watch().save(path)

        assert Workflow.load(path) == price_watch(), suffix
    with pytest.raises(ValueError, match="written as"):
        price_watch().save(tmp_path / "flow.txt")


def test_python_file_with_two_workflows_must_name_one_flow(tmp_path: Path) -> None:
    path = tmp_path / "two.py"
    path.write_text(
        "from rune.build import Workflow\na = Workflow('a')\nb = Workflow('b')\n", encoding="utf-8"
    )

    with pytest.raises(ValueError, match="makes 2 workflows"):
        Workflow.load(path)


def test_constructors_are_those_that_the_tool_generates() -> None:
    assert generate() == TARGET.read_text(encoding="utf-8"), "run make generate"


def test_misused_node_is_reported_with_the_spelling_that_works() -> None:
    with Workflow("w") as flow:
        start = input("start")
        with pytest.raises(AttributeError, match=r"the field `name` of its output is `\.out\.name`"):
            start.name  # type: ignore[attr-defined]  # noqa: B018
        with pytest.raises(TypeError, match=r"its output is `start\.out`"):
            output("done", value=start)
        with pytest.raises(KeyError, match="did you mean `start`"):
            flow["strat"]
