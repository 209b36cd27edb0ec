"""Metrics, traces and logs of three workers and a scheduler."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from rune.core.definition.parser import parse_document
from rune.core.plan.compiler import compile_definition
from rune.core.plan.model import Plan
from rune.documents.loader import check_document
from rune.runtime.engine import Engine
from rune.telemetry.tracing import ARRIVING
from tests.integration.telemetry.conftest import MonitoredCluster
from tests.integration.telemetry.nodes import MESSAGE
from tests.integration.telemetry.scrapes import journal_counts, sample, samples, values_by_labels
from tests.integration.telemetry.workflows import FAILING, HTTP_CALL, LOGGING, MIXED
from tests.support.trace_collector import Span

TIMEOUT_S = 120.0
RUNS = 15
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def plan_of(engine: Engine, document: dict[str, Any]) -> Plan:
    """Compile a document."""
    verdict = check_document(parse_document(json.dumps(document).encode()), engine.plans.catalogue)
    assert verdict.definition is not None, verdict.problems
    return compile_definition(verdict.definition, engine.plans.catalogue, verdict.parameters)  # type: ignore[arg-type]


async def _run_to_end(engine: Engine, document: dict[str, Any], input: Any, times: int = 1) -> list[str]:
    plan = plan_of(engine, document)
    made = [await engine.start(plan, json.dumps(input).encode()) for _ in range(times)]
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(*(ending for _, ending in made))
    return [accepted.id for accepted, _ in made]


def test_metrics_of_all_processes_sum_to_journal(monitored: MonitoredCluster) -> None:
    async def work() -> None:
        before = samples(*monitored.scrapes().values())
        async with monitored.client_engine() as engine:
            executions = await _run_to_end(engine, MIXED, {"items": [1, 2, 3]}, RUNS)
            executions += await _run_to_end(engine, FAILING, {}, RUNS)
            expected = await journal_counts(engine, executions)
            starts = engine.instrumentation.counters.starts
        each = {name: samples(text) for name, text in monitored.scrapes().items()}
        after = samples(*monitored.scrapes().values())
        found = {key: value - before.get(key, 0.0) for key, value in after.items()}

        assert values_by_labels(found, "rune_node_duration_seconds_count") == expected.runs
        assert (
            values_by_labels(found, "rune_executions_ended_total")
            == expected.ended
            == {("completed", "completed"): RUNS, ("failed", "halted"): RUNS}  # outcome, status
        )
        assert starts == 2 * RUNS
        assert sample(found, "rune_retries_total", type="tele.flaky") == expected.attempts == RUNS
        assert sample(found, "rune_join_wait_seconds_count") == expected.joins > 0
        assert sample(found, "rune_timer_lag_seconds_count", kind="wait") == expected.waits == RUNS
        assert sample(found, "rune_timer_lag_seconds_count", kind="retry") == RUNS
        assert sample(found, "rune_deliveries_total", verdict="run") >= sum(expected.runs.values())
        for one in each.values():
            assert sample(one, "rune_live_members", role="worker") == 3
            assert sample(one, "rune_live_members", role="scheduler") == 1
            assert sample(one, "rune_queue_depth", queue="default") == 0
            assert sample(one, "rune_outbox_lag_seconds") == 0

    asyncio.run(work())


def _spans_by_token(spans: list[Span]) -> dict[str, Span]:
    """Return the spans by token, with the status appended for retried and suspended attempts."""
    found = {}
    for each in spans:
        if "rune.node" not in each.attributes:
            found["*"] = each
            continue
        status = each.attributes["rune.status"]
        more = f" {status}" if status in ("retried", "suspended") else ""
        found[f"{each.name}@{each.attributes['rune.lineage']}{more}"] = each
    return found


def test_trace_spans_three_workers(monitored: MonitoredCluster) -> None:
    async def work() -> list[str]:
        token = ARRIVING.set(TRACEPARENT)
        try:
            async with monitored.client_engine() as engine:
                return await _run_to_end(engine, MIXED, {"items": [1, 2, 3]}, 8)
        finally:
            ARRIVING.reset(token)

    executions = asyncio.run(work())
    workers = set()
    for execution in executions:
        spans = monitored.collector.wait(execution, 13)
        named = _spans_by_token(spans)
        assert {each.trace for each in spans} == {TRACEPARENT[3:35]}
        assert [each.name for each in spans if each.parent == TRACEPARENT[36:52]] == ["mixed"]
        parents = {name: _name_of(named, each.parent) for name, each in named.items() if name != "*"}
        items = {f"each@/s:{number}": "s@/" for number in range(3)}
        assert parents == {
            "a@/": "*",
            "b@/ retried": "*",
            "b@/": "*",
            "both@/": "a@/",
            "s@/": "both@/",
            **items,
            "all@/": "s@/",
            "w@/ suspended": "all@/",
            "w@/": "all@/",
            "out@/": "w@/",
        }
        assert {_name_of(named, each) for each in named["both@/"].links} == {"a@/", "b@/"}
        assert [_name_of(named, each) for each in named["w@/"].links] == ["w@/ suspended"]
        assert [name for name, each in named.items() if each.failed] == ["b@/ retried"]
        workers |= {each.attributes["rune.worker"] for name, each in named.items() if name != "*"}
    assert len(workers) == 3


def _name_of(named: dict[str, Span], span: str) -> str:
    return next(name for name, each in named.items() if each.id == span)


def test_http_call_contains_traceparent_of_node(monitored: MonitoredCluster) -> None:
    async def work() -> str:
        async with monitored.client_engine() as engine:
            (execution,) = await _run_to_end(engine, HTTP_CALL, {"url": f"{monitored.collector.url}/called"})
            return execution

    named = _spans_by_token(monitored.collector.wait(asyncio.run(work()), 2))
    headers = monitored.collector.calls[-1]
    assert headers["traceparent"] == f"00-{named['h@/'].trace}-{named['h@/'].id}-01"
    assert named["*"].parent == ""


def test_worker_log_is_json_without_secrets(monitored: MonitoredCluster) -> None:
    secret = "s3cr3t-credential-value"

    async def work() -> str:
        async with monitored.client_engine() as engine:
            await engine.services.credentials.add(
                "shown", "header", {"name": "X-Key", "value": secret}, ("*",), insecure=True
            )
            (execution,) = await _run_to_end(engine, LOGGING, {"items": [7]})
            return execution

    execution = asyncio.run(work())
    output = "".join(each.output() for each in monitored.fleet.processes)
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    (line,) = [each for each in lines if MESSAGE in each["message"] and each["execution"] == execution]
    assert {name: line[name] for name in ("level", "node", "lineage", "attempt")} == {
        "level": "warning",
        "node": "t",
        "lineage": "/s:0",
        "attempt": 1,
    }
    assert line["worker"]
    assert line["time"].endswith("+00:00")
    assert line["fields"] == {"path": "/a", "password": "***", "sent": "value ***"}
    assert secret not in output
    assert "hunter22" not in output
