"""Traces begin where a request says, go on in children, and are not made where nobody wants them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rune.telemetry.tracing import execution_span, node_span
from tests.acceptance.api.running import Served, run
from tests.integration.telemetry.collector import Collector, collecting
from tests.integration.telemetry.documents import CHILD, MIXED, PARENT

NODES = ("tests.integration.telemetry.acting_nodes",)
COMING = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def _started(
    folder: Path, collector: Collector, workflow: str, traceparent: str = "", **settings: object
) -> str:
    async def work(server: Served) -> str:
        await server.deploy(CHILD, PARENT, MIXED)
        headers = {"traceparent": traceparent} if traceparent else {}
        body = {"input": {"items": [1]}}
        begun = await server.post(f"/workflows/{workflow}/executions", body, 202, headers=headers)
        execution: str = begun["execution_id"]
        await server.client.wait(execution, 60)
        return execution

    return run(folder, work, nodes=NODES, traces=collector.url, **settings)


def test_a_request_brings_its_trace_along_and_children_stay_in_it(tmp_path: Path) -> None:
    with collecting() as collector:
        execution = _started(tmp_path, collector, "parent", COMING)
        spans = {each.id: each for each in collector.spans.values()}
        assert {each.trace for each in spans.values()} == {COMING[3:35]}
        root = spans[f"{execution_span(execution):016x}"]
        assert (root.name, root.parent) == ("parent", COMING[36:52])
        (child,) = [each for each in spans.values() if each.name == "child"]
        assert child.parent == f"{node_span(execution, 'c@/'):016x}"
        assert spans[child.parent].parent == root.id
        (inner,) = [each for each in spans.values() if each.name == "n"]
        assert inner.parent == child.id


@pytest.mark.parametrize(("traceparent", "share"), [(COMING[:-2] + "00", 1.0), ("", 0.0)])
def test_nothing_is_exported_of_what_nobody_wants_to_see(
    tmp_path: Path, traceparent: str, share: float
) -> None:
    with collecting() as collector:
        _started(tmp_path, collector, "child", traceparent, trace_share=share)
        assert collector.spans == {}


def test_a_collector_that_is_away_holds_up_nobody(tmp_path: Path) -> None:
    with collecting() as collector:
        pass
    assert _started(tmp_path, collector, "child")
