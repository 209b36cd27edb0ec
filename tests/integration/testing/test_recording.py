"""`rune record` and `rune_recorded`: an execution becomes a test with its input, its mocks and its outcome."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rune.build import Retry, Workflow, aggregator, edit, http, input, output, split, wait
from rune.client import ApiError, Client, Conflict
from rune.nodes.registry import full_registry
from rune.runtime.queries.record import NotRecordableError, recorded_case
from rune.testing.cases import Recorded, load_recorded
from rune.testing.engine import EmbeddedEngine, Run
from rune.testing.mocks import Mocks
from tests.support.in_process_cli import InProcessCli


def quotes() -> Workflow:
    flow = Workflow("quotes")
    with flow:
        start = input("start")
        each = split("each", input_array=start.out.skus)
        ask = http("ask", url=f"https://shop.example/{flow.item}", retry=Retry(3))
        line = edit("line", assignments=[{"name": "price", "value": ask.out.price}], mode="keep_only")
        every = aggregator("every")
        asked = wait("asked", resume="signal", name_="decision")
        done = output("done", value={"lines": every.out, "decision": asked.out})
    start >> each >> ask >> line >> every >> asked >> done
    return flow


def case_of(run: Run, flow: Workflow) -> dict[str, Any]:
    return recorded_case(run.result.document, flow.to_dict(), full_registry())


@pytest.fixture
def recorded(rune_engine: EmbeddedEngine, rune_mocks: Mocks) -> dict[str, Any]:
    """The test of an execution in which one item needed a second attempt and a person decided."""
    rune_mocks.node("ask").returns(lambda call: {"price": len(call.parameters["url"])})
    rune_mocks.node("ask").item(1).fails("HTTP_TIMEOUT", times=1).returns({"price": 3})
    flow = quotes()
    run = rune_engine.start(flow, {"skus": ["a", "bb"]})
    rune_engine.advance("1h")
    rune_engine.signal(run, "decision", {"approved": True})
    assert run.status == "completed"
    return case_of(run, flow)


def test_recorded_execution_runs_again_without_services_and_without_the_signal(
    recorded: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "case.json"
    path.write_text(json.dumps(recorded), encoding="utf-8")

    found = InProcessCli(tmp_path / "home").json("test", str(path))

    assert found["status"] == "passed", found
    assert found["tests"][0]["case"].startswith("quotes as in ")


def test_recorded_mocks_are_those_of_nodes_with_effects_and_of_signals(recorded: dict[str, Any]) -> None:
    assert set(recorded["mocks"]) == {"ask", "asked"}
    assert recorded["mocks"]["ask"]["items"]["each:1"] == [
        {"fails": {"code": "ATTEMPT_FAILED", "message": "an attempt failed"}, "times": 1},
        {"returns": {"price": 3}},
    ]


def test_fixture_runs_the_recorded_workflow_and_finds_a_changed_outcome(
    recorded: dict[str, Any], tmp_path: Path, rune_recorded: Callable[[Path | str], Recorded]
) -> None:
    path = tmp_path / "case.json"
    path.write_text(json.dumps(recorded), encoding="utf-8")
    found = rune_recorded(path)

    found.check(found.run())

    with pytest.raises(AssertionError, match="output is"):
        found.check(found.run({"skus": ["a"]}))


def test_failed_execution_is_recorded_with_its_error(rune_engine: EmbeddedEngine, tmp_path: Path) -> None:
    flow = Workflow("call")
    with flow:
        start = input("start")
        call = http("call", url="https://shop.example")
    start >> call
    rune_engine.mocks.node("call").fails("HTTP_BLOCKED_ADDRESS", "the address is private", permanent=True)
    path = tmp_path / "case.json"
    path.write_text(json.dumps(case_of(rune_engine.run(flow), flow)), encoding="utf-8")

    with EmbeddedEngine(tmp_path / "again") as engine:
        again = load_recorded(path, engine)
        run = again.run()
        again.check(run)

    assert json.loads(path.read_text())["expect"]["error_contains"] == ["HTTP_BLOCKED_ADDRESS"]


def test_running_execution_is_not_recorded(rune_engine: EmbeddedEngine) -> None:
    flow = Workflow("asking")
    with flow:
        start = input("start")
        asked = wait("asked", resume="signal", name_="decision")
    start >> asked
    run = rune_engine.start(flow)
    rune_engine.settle()

    with pytest.raises(NotRecordableError, match="only an execution that has ended"):
        case_of(run, flow)


def test_cancelled_execution_is_not_recorded(rune_engine: EmbeddedEngine) -> None:
    flow = Workflow("asking")
    with flow:
        start = input("start")
        asked = wait("asked", resume="signal", name_="decision")
    start >> asked
    run = rune_engine.start(flow)
    rune_engine.settle()
    rune_engine.cancel(run)
    rune_engine.settle()

    with pytest.raises(NotRecordableError, match="was cancelled"):
        case_of(run, flow)


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


def test_items_of_nested_splits_are_recorded_with_their_own_outputs(
    rune_engine: EmbeddedEngine, rune_mocks: Mocks, tmp_path: Path
) -> None:
    rune_mocks.node("call").returns(lambda call: call.parameters["url"][-1])
    run = rune_engine.run(nested(), {"users": [["a", "b"], ["c"]]})
    path = tmp_path / "case.json"
    path.write_text(json.dumps(case_of(run, nested())), encoding="utf-8")

    found = InProcessCli(tmp_path / "home").json("test", str(path))

    assert json.loads(path.read_text())["mocks"]["call"]["items"].keys() == {
        "users:0/orders:0",
        "users:0/orders:1",
        "users:1/orders:0",
    }
    assert found["status"] == "passed", found


def test_server_returns_the_test_with_the_result_of_a_node(
    rune_engine: EmbeddedEngine, rune_mocks: Mocks, rune_client: Client
) -> None:
    rune_mocks.node("call").returns(lambda call: call.parameters["url"][-1])
    run = rune_engine.run(nested(), {"users": [["a", "b"]]})

    found = rune_client.recorded_test(run.id, node="call", lineage="users:0/orders:1")

    assert found["expect"].pop("nodes") == [
        {"node_id": "call", "item": "users:0/orders:1", "status": "success", "output": "b"}
    ]
    assert found == rune_client.recorded_test(run.id)
    assert Workflow.load(found.pop("document")) == nested()
    expected = case_of(run, nested())
    assert found == {name: expected[name] for name in found}
    with pytest.raises(ApiError, match="`call` of item users:7 did not run in"):
        rune_client.recorded_test(run.id, node="call", lineage="users:7")


def test_server_refuses_a_test_of_an_execution_that_has_not_ended(
    rune_engine: EmbeddedEngine, rune_client: Client
) -> None:
    run = rune_engine.start(quotes(), {"skus": []})
    rune_engine.settle()

    with pytest.raises(Conflict, match="only an execution that has ended"):
        rune_client.recorded_test(run.id)


def test_record_command_writes_a_test_that_passes(tmp_path: Path) -> None:
    rune = InProcessCli(tmp_path / "home")
    flow = tmp_path / "hello.yaml"
    flow.write_text(
        "id: hello\nnodes:\n  - {id: start, type: input}\n"
        "  - {id: done, type: output, parameters: {value: $start.name}}\nedges:\n  - {src: start, dst: done}\n",
        encoding="utf-8",
    )
    execution = rune.json("run", str(flow), "--input", '{"name": "Ann"}')["execution_id"]
    target = tmp_path / "test-hello.json"

    rune.output("record", execution, "-o", str(target))

    assert json.loads(target.read_text(encoding="utf-8"))["expect"] == {
        "status": "completed",
        "output": "Ann",
    }
    assert rune.json("test", str(target))["status"] == "passed"
    assert rune("record", "x-unknown").exit_code == 2
