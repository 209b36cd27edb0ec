"""Workflows run in this process: results, errors, mocks, running loops and drawings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rune.build import Workflow, aggregator, edit, expr, fail, http, input, output, split, wait
from rune.build.results import ExecutionFailed
from rune.errors import InvalidDocumentError


def squares() -> Workflow:
    flow = Workflow("squares", inputs={"type": "object", "required": ["numbers"]})
    with flow:
        start = input("start")
        numbers = split("numbers", input_array=start.out.numbers)
        square = edit("square", mode="keep_only", assignments=[{"name": "n", "value": 12 / flow.item}])
        every = aggregator("every", tolerate=1)
        done = output("done", value=expr("len($every)"))
    start >> numbers >> square >> every >> done
    return flow


def waiting() -> Workflow:
    flow = Workflow("waiting")
    with flow:
        start = input("start")
        pause = wait("pause", amount=3, unit="days")
        ask = wait("ask", resume="signal")
    start >> [pause, ask]
    return flow


def test_result_has_runs_by_node_and_item() -> None:
    result = squares().run({"numbers": [1, 0, 3]})

    assert (result.status, result.output, result.failed_items) == ("completed", 3, 1)
    assert result["square", "numbers:2"].output == {"n": 4.0}
    failed = result["square", "numbers:1"].error
    assert failed is not None
    assert failed.code == "EXPRESSION_ERROR"
    with pytest.raises(KeyError, match="ran once per item; name one, for example: numbers:0"):
        _ = result["square"]
    with pytest.raises(KeyError, match="no run of `ghost`"):
        _ = result["ghost"]
    assert result.raise_for_status() is result


def test_failed_run_raises_with_node_and_code() -> None:
    flow = Workflow("failing")
    with flow:
        start = input("start")
        broken = fail("broken", code="NO_LUCK", message="not today")
    start >> broken

    with pytest.raises(ExecutionFailed, match="ended as halted in `broken`: NO_LUCK: not today") as raised:
        flow.run().raise_for_status()

    assert (raised.value.node, raised.value.code) == ("broken", "NO_LUCK")


def test_failed_item_raises_with_item_and_the_hint_of_the_node_type() -> None:
    flow = Workflow("dividing")
    with flow:
        start = input("start")
        numbers = split("numbers", input_array=start.out.numbers)
        quote = http("quote", url=f"http://169.254.169.254/{flow.item}", error="halt")
        every = aggregator("every")
    start >> numbers >> quote >> every

    with pytest.raises(ExecutionFailed, match="in `quote` of item numbers:0: HTTP_BLOCKED") as raised:
        flow.run({"numbers": [1]}).raise_for_status()

    assert (raised.value.node, raised.value.item, raised.value.code) == ("quote", "numbers:0", "HTTP_BLOCKED")
    assert raised.value.hint == flow.registry().catalogue["http"].errors["HTTP_BLOCKED"]


def test_timeline_has_the_runs_in_the_order_they_began() -> None:
    result = squares().run({"numbers": [1, 2]})

    began = [each.node_id for each in result.timeline]
    assert began[:2] == ["start", "numbers"]
    assert began[-2:] == ["every", "done"]
    assert sorted(began[2:4]) == ["square", "square"]


def test_run_uses_node_types_of_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "acme_prices.py"
    module.write_text(
        'from rune import node\n\n\n@node("acme.double")\ndef double(price: int) -> int:\n    return price * 2\n',
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    flow = Workflow.load(
        "id: doubling\nnodes:\n  - { id: double, type: acme.double, parameters: { price: $trigger.price } }\n"
    )

    with pytest.raises(InvalidDocumentError, match=r"acme\.double"):
        flow.run({"price": 7})
    assert flow.run({"price": 7}, nodes=["acme_prices"])["double"].output == 14


def test_mocked_node_is_not_called_and_its_parameters_are_resolved() -> None:
    flow = Workflow("mocked")
    with flow:
        start = input("start")
        call = http("call", url=f"https://nowhere.invalid/{start.out.id}")
        done = output("done", value=call.out.body.price)
    start >> call >> done

    result = flow.run({"id": 7}, mocks={"call": {"status": 200, "body": {"price": 5}}})

    assert result.output == 5
    with pytest.raises(KeyError, match="no node `coll` to mock"):
        flow.run({"id": 7}, mocks={"coll": 1})


def test_run_with_fake_time_that_waits_for_a_signal_ends_after_the_given_seconds_with_explanation() -> None:
    result = waiting().run(fake_time=True, seconds=0.3)

    assert result.status == "running"
    assert result.explain("ask").reason == "waits for signal `ask`"
    with pytest.raises(KeyError, match="`start` waits for nothing"):
        result.explain("start")
    with pytest.raises(ExecutionFailed, match="ended as running"):
        result.raise_for_status()


def test_run_inside_of_a_running_loop_works_and_arun_uses_the_loop() -> None:
    async def both() -> tuple[object, object]:
        return squares().run({"numbers": []}).output, (await squares().arun({"numbers": [2]})).output

    assert asyncio.run(both()) == (0, 1)


def test_invalid_workflow_and_input_are_refused() -> None:
    flow = squares()
    with pytest.raises(InvalidDocumentError, match="numbers"):
        flow.run({})
    flow["square"].data["type"] = "nothing"
    with pytest.raises(InvalidDocumentError, match="no node type is called `nothing`"):
        flow.run({"numbers": []})


def test_home_folder_keeps_the_execution(tmp_path: Path) -> None:
    squares().run({"numbers": []}, home=tmp_path)

    assert (tmp_path / "rune.db").exists()


def test_notebook_shows_workflow_and_result_as_drawing_with_states() -> None:
    flow = squares()
    result = flow.run({"numbers": [1, 0, 3]})

    drawn = flow._repr_mimebundle_()
    states = result._repr_mimebundle_()

    assert drawn["image/svg+xml"].startswith("<svg ")
    assert "<script" not in drawn["image/svg+xml"]
    assert "1 failed, 2 success" in states["image/svg+xml"]
    assert 'class="box inside failed"' in states["image/svg+xml"]
    assert "square: 1 failed, 2 success" in states["text/plain"]
    assert "id: text" not in Workflow.load("id: 5\nnodes: []\n")._repr_mimebundle_().get("image/svg+xml", "")
