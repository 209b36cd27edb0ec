"""Crash tests: every commit point is passed, effects repeat only under one key, and a node that ignores it is found."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rune import NodeContext
from rune import node as node_type
from rune.build import Retry, Workflow, aggregator, edit, http, input, merge, output, split, wait
from rune.build import workflow as call_workflow
from rune.runtime.worker import node_runner
from rune.testing.crash import CrashTester, CrashTestError, Point
from rune.testing.engine import EmbeddedEngine
from rune.testing.mocks import Mocks
from tests.support.whole import WHOLE


@node_type("tests.book")
def book(ctx: NodeContext, ledger: str, amount: int, careless: bool = False) -> int:
    """Books an amount in a file. The service ignores a second booking under the same key, unless it is careless."""
    path = Path(ledger)
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    if careless or ctx.idempotency_key not in (line.split()[0] for line in lines):
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{ctx.idempotency_key} {amount}\n")
    return amount


def booking(ledger: Path, *, careless: bool = False) -> Workflow:
    flow = Workflow("booking")
    with flow:
        start = input("start")
        booked = book.node("book", ledger=str(ledger), amount=start.out.amount, careless=careless)
        done = output("done", value=booked.out)
    start >> booked >> done
    return flow


def mixed() -> Workflow:
    flow = Workflow("mixed")
    with flow:
        start = input("start")
        pause = wait("pause", amount=3, unit="days")
        each = split("each", input_array=start.out.ids)
        call = http("call", url=f"https://shop.example/{flow.item}")
        every = aggregator("every")
        done = output("done", value=every.out)
    start >> pause >> each >> call >> every >> done
    return flow


@pytest.mark.rune_crash
def test_booking_is_made_once_whatever_point_the_process_crashes_at(
    rune_crash: CrashTester, rune_mocks: Mocks
) -> None:
    ledger = rune_crash.folder / "ledger"
    rune_mocks.node("book").runs()

    run = rune_crash.run(booking(ledger), {"amount": 5})

    assert (run.status, run.output) == ("completed", 5)
    assert len(ledger.read_text(encoding="utf-8").splitlines()) == 1
    assert rune_mocks.node("book").distinct_keys == 1


def race() -> Workflow:
    """Two calls of which the first to end goes on, and one after them that has a timeout."""
    flow = Workflow("race")
    with flow:
        start = input("start")
        slow = http("slow", url="https://shop.example/slow")
        quick = http("quick", url="https://shop.example/quick")
        first = merge("first", wait_mode="wait_for_any")
        call = http("call", url="https://shop.example", timeout=20)
        late = edit("late", assignments=[{"name": "code", "value": flow.error.code}], mode="keep_only")
        done = output("done", value=first.out)
    start >> [slow, quick] >> first >> done
    first >> call
    call.on_error >> late
    return flow


@pytest.mark.rune_crash(most=6)
def test_mocks_that_take_time_end_in_the_order_of_their_times_and_at_timeouts(
    rune_crash: CrashTester, rune_mocks: Mocks
) -> None:
    rune_mocks.node("slow").takes("10s").returns("slow")
    rune_mocks.node("quick").takes("5s").returns("quick")
    rune_mocks.node("call").takes("30s").returns("never")

    run = rune_crash.run(race(), {})

    assert run.status == "completed"
    assert "quick" in str(run.output)
    assert "slow" not in str(run.output)
    assert run["late"].output == {"code": "TIMEOUT"}


def test_run_without_a_crash_is_that_of_the_test_engine(
    tmp_path: Path, rune_crash: CrashTester, rune_engine: EmbeddedEngine, rune_mocks: Mocks
) -> None:
    rune_mocks.node("slow").takes("10s").returns("slow")
    rune_mocks.node("quick").takes("5s").returns("quick")
    rune_mocks.node("call").takes("30s").returns("never")

    assert rune_crash.run(race(), {}).normal() == rune_engine.run(race(), {}).normal()


def unreliable() -> Workflow:
    flow = Workflow("unreliable")
    with flow:
        start = input("start")
        each = split("each", input_array=start.out.ids)
        call = http("call", url="https://shop.example", retry=Retry(3, initial_delay=1))
        every = aggregator("every")
        done = output("done", value=every.out)
    start >> each >> call >> every >> done
    return flow


@pytest.mark.rune_crash
def test_answers_of_mocks_go_on_after_a_crash_where_they_were(
    rune_crash: CrashTester, rune_mocks: Mocks
) -> None:
    rune_mocks.node("call").returns("any")
    rune_mocks.node("call").item(1).fails("HTTP_TIMEOUT", times=2).returns("after all")

    run = rune_crash.run(unreliable(), {"ids": [1, 2]})

    assert (run.status, run.output) == ("completed", ["any", "after all"])
    assert run["call", "each:1"].attempts == 3


@node_type("tests.keyed")
def keyed(ctx: NodeContext) -> str:
    """Returns its idempotency key."""
    return ctx.idempotency_key


@pytest.mark.rune_crash(most=8)
def test_identifiers_may_be_part_of_the_output(rune_crash: CrashTester, rune_mocks: Mocks) -> None:
    rune_mocks.node("key").runs()
    child = Workflow("child")
    with child:
        output("done", value="{{ [uuid(), $execution.id, now()] }}")
    flow = Workflow("identified")
    with flow:
        start = input("start")
        made = edit("made", mode="keep_only", assignments=[{"name": "u", "value": "{{ uuid() }}"}])
        key = keyed.node("key")
        called = call_workflow("called", workflow="child")
        done = output("done", value="{{ [$made, $key, $called, $execution.id, now()] }}")
    start >> made >> key >> called >> done
    rune_crash.deploy(child)

    run = rune_crash.run(flow, {})

    assert run.status == "completed"
    identified, made_key, _, execution, _ = run.output
    assert len(identified["u"]) == 36
    assert made_key.startswith(execution)


@pytest.mark.rune_crash(most=3)
def test_folder_of_the_run_may_be_an_input_and_part_of_an_output(
    rune_crash: CrashTester, rune_mocks: Mocks
) -> None:
    rune_mocks.node("book").runs()
    flow = Workflow("booking")
    with flow:
        start = input("start")
        booked = book.node("book", ledger=start.out.ledger, amount=start.out.amount)
        done = output("done", value=start.out.ledger)
    start >> booked >> done
    ledger = rune_crash.folder / "ledger"

    run = rune_crash.run(flow, {"ledger": ledger, "amount": 5})

    assert run.output == str(ledger)
    assert run.normal()["output"] == "{folder}/ledger"
    assert [each.node_id for each in run.timeline] == ["start", "book", "done"]
    assert len(ledger.read_text(encoding="utf-8").splitlines()) == 1


def test_booking_that_ignores_the_key_is_made_twice_after_a_crash_behind_the_effect(
    rune_crash: CrashTester, rune_mocks: Mocks
) -> None:
    def booked() -> int:
        rune_mocks.node("book").runs()
        ledger = rune_crash.folder / "ledger"
        rune_crash.run(booking(ledger, careless=True), {"amount": 5})
        return len(ledger.read_text(encoding="utf-8").splitlines())

    assert booked() == 1
    found: dict[str, int] = {}
    for point in rune_crash.points():
        rune_crash.begin(point)
        found[str(point)] = booked()

    assert set(found.values()) == {1, 2}
    assert [str(point) for point, nodes in rune_crash.repeated.items() if "book" in nodes] == [
        point for point, count in found.items() if count == 2
    ]


@pytest.mark.rune_crash(most=12 if not WHOLE else None)
def test_mixed_workflow_has_one_outcome_whatever_point_the_process_crashes_at(
    rune_crash: CrashTester, rune_mocks: Mocks
) -> None:
    rune_mocks.node("call").returns(lambda call: {"body": call.parameters["url"][-1]})

    run = rune_crash.run(mixed(), {"ids": [1, 2, 3]})

    assert [each["body"] for each in run.output] == ["1", "2", "3"]
    assert rune_mocks.node("call").distinct_keys == 3


def nested() -> Workflow:
    flow = Workflow("nested")
    with flow:
        start = input("start")
        users = split("users", input_array=start.out.users)
        orders = split("orders", input_array=flow.item)
        call = http("call", url=f"https://shop.example/{flow.item}")
        of_user = aggregator("of_user")
        every = aggregator("every")
    start >> users >> orders >> call >> of_user >> every
    return flow


@pytest.mark.rune_crash(at="ran")
def test_node_in_nested_splits_has_one_key_for_each_item_of_both(
    rune_crash: CrashTester, rune_mocks: Mocks
) -> None:
    rune_mocks.node("call").returns(lambda call: call.item)

    run = rune_crash.run(nested(), {"users": [["a", "b"], ["c", "d"]]})

    items = [f"users:{user}/orders:{order}" for user in (0, 1) for order in (0, 1)]
    assert run["every"].output == [items[:2], items[2:]]
    assert sorted({each.item for each in rune_mocks.node("call").calls}) == items
    assert rune_mocks.node("call").distinct_keys == 4


@pytest.mark.rune_crash(at="ran")
def test_pure_node_that_is_mocked_may_run_again(rune_crash: CrashTester, rune_mocks: Mocks) -> None:
    rune_mocks.node("line").returns({"price": 7})
    rune_mocks.node("call").returns({"sent": True})
    flow = Workflow("lines")
    with flow:
        start = input("start")
        line = edit("line", assignments=[{"name": "price", "value": 1}])
        call = http("call", url="https://shop.example")
        done = output("done", value=line.out)
    start >> line >> call >> done

    run = rune_crash.run(flow)

    assert (run.status, run.output) == ("completed", {"price": 7})
    assert "line" not in {node for nodes in rune_crash.repeated.values() for node in nodes}


def calling(**options: Any) -> Workflow:
    flow = Workflow("calling")
    with flow:
        start = input("start")
        call = http("call", url="https://shop.example", **options)
    start >> call
    return flow


def test_effect_that_is_called_again_under_another_key_is_reported(
    rune_crash: CrashTester, rune_mocks: Mocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_runner, "idempotency_key", lambda root, name: f"{root}:{name}:{os.getpid()}")
    rune_mocks.node("call").returns(1)
    rune_crash.run(calling())
    rune_crash.begin(Point(("ran", 1)))
    rune_mocks.node("call").returns(1)

    with pytest.raises(
        CrashTestError, match=r"^after a crash at ran:1: `call` was called 2 times under 2 keys$"
    ):
        rune_crash.run(calling())


def test_attempts_under_different_keys_are_reported_without_a_crash(
    rune_crash: CrashTester, rune_mocks: Mocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = itertools.count()
    monkeypatch.setattr(node_runner, "idempotency_key", lambda root, name: f"{root}:{next(keys)}")
    rune_mocks.node("call").fails("HTTP_TIMEOUT", times=1).returns(1)

    with pytest.raises(CrashTestError, match=r"^without a crash: `call` was called 2 times under 2 keys$"):
        rune_crash.run(calling(retry=Retry(2)))


def test_effect_without_a_key_that_is_called_again_is_reported(
    rune_crash: CrashTester, rune_mocks: Mocks
) -> None:
    rune_mocks.node("call").returns(1)
    rune_crash.run(calling(idempotency_key=False))
    rune_crash.begin(Point(("ran", 1)))
    rune_mocks.node("call").returns(1)

    with pytest.raises(CrashTestError, match="`call` was called again without an idempotency key"):
        rune_crash.run(calling(idempotency_key=False))


def test_attempts_of_one_run_are_not_repeated_effects(rune_crash: CrashTester, rune_mocks: Mocks) -> None:
    def run() -> None:
        rune_mocks.node("call").fails("HTTP_TIMEOUT", times=1).returns(1)
        assert rune_crash.run(calling(retry=Retry(3)))["call"].attempts == 2

    run()
    rune_crash.begin(Point(("accepted", 1)))
    run()

    assert rune_crash.repeated == {}


REPORTED = """
import pytest
from rune.build import Workflow, http, input

flow = Workflow("calling")
with flow:
    start = input("start")
    call = http("call", url="https://shop.example")
start >> call


@pytest.mark.rune_crash(at="ran")
def test_call(rune_crash, rune_mocks):
    rune_mocks.node("call").returns(1)
    assert rune_crash.run(flow).status == "completed"
"""


@pytest.mark.parametrize("processes", ["0", "2"])
def test_summary_of_pytest_lists_repeated_effects(tmp_path: Path, processes: str) -> None:
    (tmp_path / "test_calls.py").write_text(REPORTED, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", processes, str(tmp_path)]

    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert "repeated effects" in found.stdout
    assert "test_calls.py::test_call: `call` was called again after a crash at ran:1\n" in found.stdout


@node_type("tests.count_runs")
def count_runs(ctx: NodeContext, counter: str) -> int:
    """Returns how often it has run, which a workflow must not depend on."""
    with Path(counter).open("a", encoding="utf-8") as file:
        file.write("x")
    return len(Path(counter).read_text(encoding="utf-8"))


def test_outcome_that_depends_on_the_crash_is_reported_with_node_and_point(
    rune_crash: CrashTester, rune_mocks: Mocks
) -> None:
    def run() -> None:
        rune_mocks.strict(False)
        flow = Workflow("counting")
        with flow:
            start = input("start")
            counted = count_runs.node("counted", counter=str(rune_crash.folder / "counter"))
        start >> counted
        rune_crash.run(flow)

    run()
    rune_crash.begin(Point(("ran", 1)))

    with pytest.raises(CrashTestError, match=r"after a crash at ran:1: output: .* instead of .*; counted: "):
        run()


def test_crash_point_can_be_chosen(tmp_path: Path, rune_mocks: Mocks) -> None:
    rune_mocks.node("book").runs()
    tester = CrashTester(tmp_path / "chosen", rune_mocks, at="journaled", most=1)

    runs = list(tester.each(booking(tmp_path / "ledger"), {"amount": 5}))

    assert [str(run.crash) for run in runs] == ["None", "journaled:1"]
