"""Traces: continued from the request, passed to children, and sampled."""

from __future__ import annotations

from pathlib import Path

import pytest

from rune.telemetry.tracing import execution_span, node_span
from tests.integration.telemetry.workflows import CHILD, MIXED, PARENT
from tests.support.api_server import RunningServer, run
from tests.support.trace_collector import Collector, running_collector

NODES = ("tests.integration.telemetry.nodes",)
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def _run_execution(
    folder: Path, collector: Collector, workflow: str, traceparent: str = "", **settings: object
) -> str:
    async def work(server: RunningServer) -> str:
        await server.deploy(CHILD, PARENT, MIXED)
        headers = {"traceparent": traceparent} if traceparent else {}
        body = {"input": {"items": [1]}}
        started = await server.post(f"/workflows/{workflow}/executions", body, 202, headers=headers)
        execution: str = started["execution_id"]
        await server.client.wait(execution, 60)
        return execution

    return run(folder, work, nodes=NODES, traces=collector.url, **settings)


def test_child_spans_share_trace_of_request(tmp_path: Path) -> None:
    with running_collector() as collector:
        execution = _run_execution(tmp_path, collector, "parent", TRACEPARENT)
        spans = {each.id: each for each in collector.spans.values()}
        assert {each.trace for each in spans.values()} == {TRACEPARENT[3:35]}
        root = spans[f"{execution_span(execution):016x}"]
        assert (root.name, root.parent) == ("parent", TRACEPARENT[36:52])
        (child,) = [each for each in spans.values() if each.name == "child"]
        assert child.parent == f"{node_span(execution, 'c@/'):016x}"
        assert spans[child.parent].parent == root.id
        (inner,) = [each for each in spans.values() if each.name == "n"]
        assert inner.parent == child.id


@pytest.mark.parametrize(("traceparent", "share"), [(TRACEPARENT[:-2] + "00", 1.0), ("", 0.0)])
def test_unsampled_trace_is_not_exported(tmp_path: Path, traceparent: str, share: float) -> None:
    with running_collector() as collector:
        _run_execution(tmp_path, collector, "child", traceparent, trace_share=share)
        assert collector.spans == {}


def test_missing_collector_does_not_block_executions(tmp_path: Path) -> None:
    with running_collector() as collector:
        pass
    assert _run_execution(tmp_path, collector, "child")
