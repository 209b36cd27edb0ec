"""The fixtures of the pytest plugin: engine, mocks and client."""

from __future__ import annotations

from pathlib import Path

import pytest

from rune.build import (
    Retry,
    Workflow,
    aggregator,
    edit,
    expr,
    http,
    input,
    log,
    merge,
    output,
    split,
    wait,
    workflow,
)
from rune.build.operations import UnknownTypesError
from rune.client import Client
from rune.testing.engine import EmbeddedEngine
from rune.testing.mocks import Mocks, UnmockedNodeError, milliseconds
from rune.testing.plugin import pytest_assertrepr_compare


def race() -> Workflow:
    """Two services are asked, and a merge waits for both for five minutes."""
    flow = Workflow("race")
    with flow:
        start = input("start")
        near = http("near", url="https://near.example")
        far = http("far", url="https://far.example")
        both = merge("both", timeout_=300)
        done = output("done", value=both.out)
    start >> [near, far]
    [near, far] >> both
    both >> done
    return flow


def fetch(**options: object) -> Workflow:
    flow = Workflow("fetch")
    with flow:
        start = input("start")
        call = http("call", url=f"https://shop.example/{start.out.sku}", **options)  # type: ignore[arg-type]
        done = output("done", value=call.out.body)
    start >> call >> done
    return flow


def test_comparison_of_normal_forms_shows_the_nodes_that_differ(
    rune_engine: EmbeddedEngine, rune_mocks: Mocks
) -> None:
    rune_mocks.node("call").returns({"body": 7})
    found = rune_engine.run(fetch(), {"sku": "a"}).normal()
    expected = {**found, "nodes": {**found["nodes"], "call": {**found["nodes"]["call"], "attempts": 3}}}

    lines = pytest_assertrepr_compare("==", found, expected) or []

    assert [line.split(":")[0] for line in lines[1:]] == ["call"]
    assert "'attempts': 1" in lines[1]
    assert "instead of {'status': 'success', 'attempts': 3" in lines[1]
    assert pytest_assertrepr_compare("==", {"a": 1}, {"a": 2}) is None


def test_slow_branch_is_given_up_after_the_timeout_of_the_merge(
    rune_engine: EmbeddedEngine, rune_mocks: Mocks
) -> None:
    rune_mocks.node("near").takes("10m").returns(1)
    rune_mocks.node("far").returns(2)

    run = rune_engine.start(race(), {})
    rune_engine.settle()
    waiting = run.explain("both")
    rune_engine.advance("4m")
    early = run.ended
    rune_engine.advance("1m")

    assert early is False
    assert (waiting.missing, waiting.arrived) == (["near"], ["far"])
    assert run.ended
    assert run.error is not None
    assert (run.error.code, run.error.node_id) == ("TIMEOUT", "both")


def test_mock_fails_some_calls_then_returns_and_records_parameters_and_keys(
    rune_engine: EmbeddedEngine, rune_mocks: Mocks
) -> None:
    mock = rune_mocks.node("call").fails("HTTP_TIMEOUT", times=2).returns({"status": 200, "body": 7})

    run = rune_engine.run(fetch(retry=Retry(4)), {"sku": "a-7"})

    assert (run.status, run.output, run["call"].attempts) == ("completed", 7, 3)
    assert [each.attempt for each in mock.calls] == [1, 2, 3]
    assert mock.calls[0].parameters["url"] == "https://shop.example/a-7"
    assert mock.distinct_keys == 1


def test_mock_that_takes_longer_than_the_timeout_of_its_node_times_out(
    rune_engine: EmbeddedEngine, rune_mocks: Mocks
) -> None:
    mock = rune_mocks.node("call").takes("1h").returns({"body": 1})

    run = rune_engine.run(fetch(timeout=60, retry=Retry(2)), {"sku": "x"})

    assert run.error is not None
    assert (run.error.code, run["call"].attempts, len(mock.calls)) == ("TIMEOUT", 2, 2)


def test_mock_by_type_by_item_and_by_function(rune_engine: EmbeddedEngine, rune_mocks: Mocks) -> None:
    flow = Workflow("items")
    with flow:
        start = input("start")
        each = split("each", input_array=start.out.ids)
        call = http("call", url=f"https://shop.example/{flow.item}")
        every = aggregator("every", tolerate=3)
        done = output("done", value=expr("[row.body ?? row.error.code for row in $every]"))
    start >> each >> call >> every >> done
    rune_mocks.type("http").returns(lambda call: {"body": call.parameters["url"][-1]})
    rune_mocks.node("call").item(1).fails("HTTP_CONNECT", permanent=True)

    run = rune_engine.run(flow, {"ids": [5, 6, 7]})

    assert run.output == ["5", "HTTP_CONNECT", "7"]
    assert run["call", "each:1"].status == "failed"


def test_node_with_effects_without_a_mock_fails_the_test(
    rune_engine: EmbeddedEngine, rune_mocks: Mocks
) -> None:
    with pytest.raises(
        UnmockedNodeError, match=r"`call` has effects and no mock: write mocks.node\('call'\)"
    ):
        rune_engine.run(fetch(), {"sku": "x"})
    rune_mocks.unmocked.clear()


def test_run_that_only_a_signal_can_continue_is_reported_as_stuck(rune_engine: EmbeddedEngine) -> None:
    flow = Workflow("ask")
    with flow:
        start = input("start")
        ask = wait("ask", resume="signal")
    start >> ask

    with pytest.raises(AssertionError, match="`ask` waits for signal `ask`"):
        rune_engine.run(flow)
    run = rune_engine.start(flow)
    run.signal("ask", {"ok": True})
    assert run.output == {"ask": {"ok": True}}


def test_child_workflow_is_deployed_and_called(rune_engine: EmbeddedEngine, rune_mocks: Mocks) -> None:
    rune_mocks.node("call").returns({"body": 3})
    rune_engine.deploy(fetch())
    flow = Workflow("parent")
    with flow:
        start = input("start")
        child = workflow("child", workflow="fetch", input={"sku": "x"})
        done = output("done", value=child.out)
    start >> child >> done

    assert rune_engine.run(flow).output == 3


def test_normal_form_has_neither_ids_nor_times(rune_engine: EmbeddedEngine, rune_mocks: Mocks) -> None:
    rune_mocks.node("call").returns({"body": 3})

    one, two = (rune_engine.run(fetch(), {"sku": "x"}).normal() for _ in range(2))

    assert one == two
    assert one["nodes"]["call"] == {"status": "success", "attempts": 1, "output": {"body": 3}}
    assert set(one) == {"status", "output", "error", "failed_items", "nodes"}


def test_pure_node_can_be_mocked_but_takes_no_time(rune_engine: EmbeddedEngine, rune_mocks: Mocks) -> None:
    flow = Workflow("pure")
    with flow:
        start = input("start")
        shape = edit("shape", mode="keep_only", assignments=[{"name": "a", "value": 1}])
        say = log("say", message=shape.out.a)
    start >> shape >> say
    rune_mocks.node("shape").returns({"a": 9})

    assert rune_engine.run(flow).output == {"say": 9}
    rune_mocks.node("shape").takes("3s")
    failed = rune_engine.run(flow)
    assert failed.error is not None
    assert "takes no time" in failed.error.message


@pytest.mark.parametrize(
    ("text", "expected"), [("3d", 259_200_000), ("1h30m", 5_400_000), ("250ms", 250), (1.5, 1500)]
)
def test_duration_is_read(text: str | float, expected: int) -> None:
    assert milliseconds(text) == expected


def test_unknown_duration_is_refused() -> None:
    with pytest.raises(ValueError, match="`3 days` is not a duration"):
        milliseconds("3 days")


def test_client_talks_to_a_server_around_the_engine(
    rune_client: Client, rune_engine: EmbeddedEngine, rune_mocks: Mocks
) -> None:
    rune_mocks.node("call").returns({"body": 3})
    rune_client.deploy(fetch().to_dict())

    started = rune_client.start("fetch", {"sku": "x"})
    rune_engine.settle()

    assert rune_client.execution(started.execution_id).status == "completed"
    assert rune_client.output(started.execution_id) == 3


def test_flow_is_deployed_with_a_note(rune_client: Client) -> None:
    fetch().deploy(rune_client, note="first try")

    assert [each.note for each in rune_client.versions("fetch")] == ["first try"]


def test_flow_with_a_type_that_no_worker_has_is_not_deployed(rune_client: Client) -> None:
    flow = Workflow.load({"id": "a", "nodes": [{"id": "n", "type": "acme.unknown"}], "edges": []})

    with pytest.raises(
        UnknownTypesError, match=r"`acme\.unknown`: no worker of the server has this node type"
    ):
        flow.deploy(rune_client)

    assert list(rune_client.workflows()) == []


def test_flow_with_a_task_that_cannot_be_imported_is_not_deployed(rune_client: Client) -> None:
    flow = Workflow("tasks")
    with flow:
        fetch = input("fetch")

    @flow.task
    def total(lines: list[int] = fetch.out.lines) -> int:  # type: ignore[assignment]
        return sum(lines)

    with pytest.raises(UnknownTypesError, match=r"`local\.total`"):
        flow.deploy(rune_client)

    assert list(rune_client.workflows()) == []


def test_engine_takes_its_folder_as_text_and_names_what_keeps_it_from_opening(tmp_path: Path) -> None:
    flow = Workflow("short")
    with flow:
        start = input("start")
        done = output("done", value=start.out)
    start >> done
    (tmp_path / "file").write_text("", encoding="utf-8")
    broken = EmbeddedEngine(str(tmp_path / "file"))
    for _ in range(2):
        with pytest.raises(FileExistsError):
            broken.run(flow, {})

    with EmbeddedEngine(str(tmp_path / "folder")) as engine:
        assert engine.run(flow, {"a": 1}).output == {"a": 1}
    assert (tmp_path / "folder").is_dir()
