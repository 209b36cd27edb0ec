"""What three workers and a scheduler say together is what the journal has."""

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
from tests.integration.telemetry.acting_nodes import SAID
from tests.integration.telemetry.collector import Seen
from tests.integration.telemetry.conftest import Watched
from tests.integration.telemetry.documents import CALLS, FAILS, MIXED, TALKS
from tests.integration.telemetry.samples import by, of, samples, truth

PATIENCE = 120.0
EACH = 15
COMING = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def plan_of(engine: Engine, document: dict[str, Any]) -> Plan:
    """The plan of a document."""
    verdict = check_document(parse_document(json.dumps(document).encode()), engine.plans.catalogue)
    assert verdict.definition is not None, verdict.problems
    return compile_definition(verdict.definition, engine.plans.catalogue, verdict.parameters)  # type: ignore[arg-type]


async def _ended(engine: Engine, document: dict[str, Any], input: Any, times: int = 1) -> list[str]:
    plan = plan_of(engine, document)
    made = [await engine.start(plan, json.dumps(input).encode()) for _ in range(times)]
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(ending for _, ending in made))
    return [accepted.id for accepted, _ in made]


def test_the_scrapes_of_all_processes_add_up_to_the_journal(watched: Watched) -> None:
    async def work() -> None:
        before = samples(*watched.scrapes().values())
        async with watched.asked() as engine:
            executions = await _ended(engine, MIXED, {"items": [1, 2, 3]}, EACH)
            executions += await _ended(engine, FAILS, {}, EACH)
            told = await truth(engine, executions)
            starts = engine.instrumentation.counters.starts
        each = {name: samples(text) for name, text in watched.scrapes().items()}
        after = samples(*watched.scrapes().values())
        found = {key: value - before.get(key, 0.0) for key, value in after.items()}

        assert by(found, "rune_node_duration_seconds_count") == told.runs
        assert (
            by(found, "rune_executions_ended_total")
            == told.ended
            == {("completed",): EACH, ("halted",): EACH}
        )
        assert starts == 2 * EACH
        assert of(found, "rune_retries_total", type="tele.flaky") == told.attempts == EACH
        assert of(found, "rune_join_wait_seconds_count") == told.joins > 0
        assert of(found, "rune_timer_lag_seconds_count", kind="wait") == told.waits == EACH
        assert of(found, "rune_timer_lag_seconds_count", kind="retry") == EACH
        assert of(found, "rune_deliveries_total", verdict="run") >= sum(told.runs.values())
        for one in each.values():
            assert of(one, "rune_live_members", role="worker") == 3
            assert of(one, "rune_live_members", role="scheduler") == 1
            assert of(one, "rune_queue_depth", queue="default") == 0
            assert of(one, "rune_outbox_lag_seconds") == 0

    asyncio.run(work())


def _named(spans: list[Seen]) -> dict[str, Seen]:
    """Spans by the token they belong to and, where it is not the last, by what they came to."""
    found = {}
    for each in spans:
        if "rune.node" not in each.attributes:
            found["*"] = each
            continue
        status = each.attributes["rune.status"]
        more = f" {status}" if status in ("retried", "suspended") else ""
        found[f"{each.name}@{each.attributes['rune.lineage']}{more}"] = each
    return found


def test_one_trace_leads_through_three_workers(watched: Watched) -> None:
    async def work() -> list[str]:
        token = ARRIVING.set(COMING)
        try:
            async with watched.asked() as engine:
                return await _ended(engine, MIXED, {"items": [1, 2, 3]}, 8)
        finally:
            ARRIVING.reset(token)

    executions = asyncio.run(work())
    workers = set()
    for execution in executions:
        spans = watched.collector.wait(execution, 13)
        named = _named(spans)
        assert {each.trace for each in spans} == {COMING[3:35]}
        assert [each.name for each in spans if each.parent == COMING[36:52]] == ["mixed"]
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


def _name_of(named: dict[str, Seen], span: str) -> str:
    return next(name for name, each in named.items() if each.id == span)


def test_a_call_carries_the_trace_of_its_node(watched: Watched) -> None:
    async def work() -> str:
        async with watched.asked() as engine:
            (execution,) = await _ended(engine, CALLS, {"url": f"{watched.collector.url}/asked"})
            return execution

    named = _named(watched.collector.wait(asyncio.run(work()), 2))
    headers = watched.collector.calls[-1]
    assert headers["traceparent"] == f"00-{named['h@/'].trace}-{named['h@/'].id}-01"
    assert named["*"].parent == ""


def test_the_log_of_a_worker_is_json_that_says_where_and_hides_secrets(watched: Watched) -> None:
    secret = "s3cr3t-that-nobody-may-read"

    async def work() -> str:
        async with watched.asked() as engine:
            await engine.services.credentials.add("shown", "header", {"name": "X-Key", "value": secret})
            (execution,) = await _ended(engine, TALKS, {"items": [7]})
            return execution

    execution = asyncio.run(work())
    said = "".join(each.said() for each in watched.fleet.processes)
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    (line,) = [each for each in lines if SAID in each["message"] and each["execution"] == execution]
    assert {name: line[name] for name in ("level", "node", "lineage", "attempt")} == {
        "level": "warning",
        "node": "t",
        "lineage": "/s:0",
        "attempt": 1,
    }
    assert line["worker"]
    assert line["time"].endswith("+00:00")
    assert line["fields"] == {"path": "/a", "password": "***", "sent": "value ***"}
    assert secret not in said
    assert "hunter22" not in said
