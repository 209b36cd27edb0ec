"""`pytest --rune-cov`: nodes, outlets and error edges that no test took."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rune.build import Workflow, aggregator, conditional, fail, http, input, log, output, split, workflow
from rune.testing.coverage import Coverage
from rune.testing.crash import CrashTester
from rune.testing.engine import EmbeddedEngine
from rune.testing.mocks import Mocks

pytestmark = pytest.mark.long

TESTS = """
from rune.build import Workflow, conditional, http, input, log, output

flow = Workflow("quotes")
with flow:
    start = input("start")
    ask = http("ask", url="https://shop.example")
    cheap = conditional("cheap", expression=ask.out.price < 10)
    buy = output("buy", value=1)
    wait = output("leave", value=2)
    note = log("note", message="no quote")
start >> ask >> cheap
cheap["true"] >> buy
cheap["false"] >> wait
ask.on_error >> note


def test_one(rune_engine, rune_mocks):
    rune_mocks.node("ask").returns({"price": 7})
    assert rune_engine.run(flow).output == 1


def test_two(rune_engine, rune_mocks):
    rune_mocks.node("ask").fails("HTTP_TIMEOUT", permanent=True)
    assert rune_engine.run(flow).status == "completed"
"""


def branching() -> Workflow:
    flow = Workflow("branching")
    with flow:
        start = input("start")
        each = split("each", input_array=start.out.prices)
        ask = http("ask", url="https://shop.example")
        cheap = conditional("cheap", expression=flow.item < 10)
        buy = log("buy", message="buy")
        every = aggregator("every")
        note = log("note", message="no answer")
    start >> each >> ask >> cheap
    cheap["true"] >> buy >> every
    cheap["false"] >> every
    ask.on_error >> note >> every
    return flow


def covered(tmp_path: Path, flow: Workflow, value: object, *others: Workflow, **mocks: object) -> list[str]:
    coverage = Coverage()
    with EmbeddedEngine(tmp_path / "rune", coverage=coverage) as engine:
        for name, answer in mocks.items():
            engine.mocks.node(name).returns(answer)
        for each in others:
            engine.deploy(each)
        engine.run(flow, value)
    return coverage.lines()


def test_coverage_of_split_names_the_outlet_and_the_error_edge_that_no_item_took(tmp_path: Path) -> None:
    lines = covered(tmp_path, branching(), {"prices": [1, 2]}, ask={})

    assert lines[0] == 'branching: 7 of 10; not taken: ask.on_error, cheap["false"], note'


def test_coverage_of_items_is_the_union_of_what_they_took(tmp_path: Path) -> None:
    coverage = Coverage()
    with EmbeddedEngine(tmp_path / "rune", coverage=coverage) as engine:
        engine.mocks.node("ask").returns({})
        engine.mocks.node("ask").item(2).fails("HTTP_TIMEOUT", permanent=True)
        engine.run(branching(), {"prices": [1, 20, 3]})

    assert coverage.lines() == ["branching: 10 of 10", "total: 10 of 10, 100 %"]


def test_coverage_contains_the_workflow_that_a_node_started(tmp_path: Path) -> None:
    child = Workflow("child")
    with child:
        begin = input("begin")
        stop = fail("stop", message="no")
        done = output("done", value=1)
        check = conditional("check", expression=child.trigger.good)
    begin >> check
    check["true"] >> done
    check["false"] >> stop
    parent = Workflow("parent")
    with parent:
        start = input("start")
        call = workflow("call", workflow="child", input={"good": True})
    start >> call

    lines = covered(tmp_path, parent, {}, child)

    assert lines == [
        'child: 4 of 6; not taken: stop, check["false"]',
        "parent: 2 of 2",
        "total: 6 of 8, 75 %",
    ]


def test_coverage_contains_the_run_of_a_crash_test_without_a_crash(tmp_path: Path) -> None:
    coverage = Coverage()
    mocks = Mocks()
    mocks.node("ask").returns({})
    tester = CrashTester(tmp_path / "crash", mocks, at="journaled", most=1, coverage=coverage)

    list(tester.each(branching(), {"prices": [1, 20]}))

    assert coverage.lines()[0] == "branching: 8 of 10; not taken: ask.on_error, note"


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one-process", "xdist"])
def test_pytest_with_rune_cov_lists_what_no_test_took(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "test_quotes.py").write_text(TESTS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "rune.testing.plugin", "-q", "--rune-cov", *options]

    done = subprocess.run(
        [*command, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        text=True,
        stdout=subprocess.PIPE,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert 'quotes: 7 of 9; not taken: cheap["false"], leave' in done.stdout
    assert "total: 7 of 9, 77 %" in done.stdout
