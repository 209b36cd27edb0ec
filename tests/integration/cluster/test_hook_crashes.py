"""Schedulers crash while they start handlers; each failed, late or missing execution is handled once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.backends import flush_redis
from tests.support.cli_process import until
from tests.support.cluster_cli import command_line
from tests.support.clusters import open_cluster
from tests.support.documents import document, node
from tests.support.forked_rune import KILLED
from tests.support.whole import WHOLE

pytestmark = pytest.mark.long

POINTS = ("handling", "accepted", "admitted", "handled")
FAILURES = 1_000 if WHOLE else 60
TIMEOUT_S = 240.0
HANDLER = document(
    [node("in", "input"), node("out", "output", {"value": "{{ $trigger.execution.id }}"})],
    "in>out",
    id="tell-ops",
)
FAILING = document(
    [node("in", "input"), node("stop", "fail", {"message": "no stock"})],
    "in>stop",
    id="orders",
    settings={"on_failure": "tell-ops"},
)


def test_handlers_start_once_whatever_crashes(tmp_path: Path) -> None:
    with open_cluster(tmp_path, "redis", in_place=True, workers=0, schedulers=0) as cluster:
        cluster.start_worker()
        rune = command_line(cluster.fleet)
        for each in (HANDLER, FAILING):
            path = tmp_path / f"{each['id']}.json"
            path.write_text(json.dumps(each))
            rune.json("deploy", str(path))

        async def fail_all() -> list[str]:
            async with cluster.connect() as (engine, _):
                service = engine.services.executions
                started = [(await service.start("orders", None, b"{}")).id for _ in range(FAILURES)]
                for each in started:
                    assert (await service.wait_for_end(each)).status == "halted"
                return started

        failed = asyncio.run(fail_all())
        for point in POINTS:
            # The first batch of a process has several handlers: it dies between two of them.
            times = 1 if point == "handled" else 5
            crashing = cluster.fleet.start("scheduler", RUNE_FAILPOINT=f"{point}:{times}")
            assert crashing.process.wait(TIMEOUT_S) == KILLED, crashing.output()[-2000:]
        cluster.fleet.start("scheduler").wait_ready()

        def handlers() -> list[dict[str, Any]] | None:
            found = rune.json("list", "--workflow", "tell-ops", "--limit", str(2 * FAILURES))["executions"]
            return found if sum(each["status"] == "completed" for each in found) >= FAILURES else None

        found = until(handlers, "a handler of each failure has ended")
        told = Counter(rune.json("show", each["execution_id"])["output"] for each in found)
        assert told == dict.fromkeys(failed, 1)


def test_late_execution_is_handled_once_whatever_is_lost(tmp_path: Path) -> None:
    late = document(
        [node("in", "input"), node("w", "wait", {"resume": "signal", "name": "go"})],
        "in>w",
        id="slow",
        settings={"expect_within": 1, "on_late": "tell-ops"},
    )
    with open_cluster(tmp_path, "redis", in_place=True, workers=0, schedulers=0) as cluster:
        cluster.start_worker()
        rune = command_line(cluster.fleet)
        for each in (HANDLER, late):
            path = tmp_path / f"{each['id']}.json"
            path.write_text(json.dumps(each))
            rune.json("deploy", str(path))
        started = [rune.json("start", "slow")["execution_id"] for _ in range(3)]
        rune.json("pause", started[0])
        # The timer has fired and nothing is recorded; then the fact is, and the state does not know of it.
        for point in ("fired", "late"):
            crashing = cluster.fleet.start("scheduler", RUNE_FAILPOINT=f"{point}:2")
            assert crashing.process.wait(TIMEOUT_S) == KILLED, crashing.output()[-2000:]
        asyncio.run(flush_redis())
        cluster.fleet.start("scheduler").wait_ready()

        def handlers() -> list[dict[str, Any]] | None:
            found = rune.json("list", "--workflow", "tell-ops")["executions"]
            return found if sum(each["status"] == "completed" for each in found) >= len(started) else None

        def told() -> Counter[str]:
            found = until(handlers, "a handler of each late execution has ended")
            return Counter(rune.json("show", each["execution_id"])["output"] for each in found)

        assert told() == dict.fromkeys(started, 1)
        # The state is lost again, after all of them were late.
        asyncio.run(flush_redis())
        rune.json("resume", started[0])
        for each in started:
            rune.json("signal", each, "go")

        def ended() -> bool | None:
            return all(rune.json("show", each)["status"] == "completed" for each in started) or None

        until(ended, "the late executions have completed")
        assert told() == dict.fromkeys(started, 1)


def test_missing_execution_is_handled_once_whatever_crashes(tmp_path: Path) -> None:
    nightly = document([node("in", "input")], id="nightly", settings={"on_missing": "tell-ops"})
    told = document(
        [node("in", "input"), node("out", "output", {"value": "{{ $trigger }}"})], "in>out", id="tell-ops"
    )
    with open_cluster(tmp_path, "redis", in_place=True, workers=0, schedulers=0) as cluster:
        cluster.start_worker()
        rune = command_line(cluster.fleet)

        def deploy(raw: dict[str, Any]) -> None:
            path = tmp_path / f"{raw['id']}.json"
            path.write_text(json.dumps(raw))
            rune.json("deploy", str(path))

        deploy(told)
        deploy({**nightly, "settings": {"on_missing": "tell-ops", "expect_every": 1}})
        # Before and after the next period is stored with the row of the handler.
        for point in ("missing", "missed"):
            crashing = cluster.fleet.start("scheduler", RUNE_FAILPOINT=point)
            assert crashing.process.wait(TIMEOUT_S) == KILLED, crashing.output()[-2000:]
        # No further period ends, and the row of the last one is there.
        deploy(nightly)
        crashing = cluster.fleet.start("scheduler", RUNE_FAILPOINT="handled")
        assert crashing.process.wait(TIMEOUT_S) == KILLED, crashing.output()[-2000:]
        cluster.fleet.start("scheduler").wait_ready()
        cluster.fleet.start("scheduler").wait_ready()

        def handlers() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = rune.json("list", "--workflow", "tell-ops")["executions"]
            return found

        deploy(FAILING)
        failed = rune.json("start", "orders")["execution_id"]

        def both() -> list[dict[str, Any]] | None:
            found = handlers()
            return found if len([each for each in found if each["status"] == "completed"]) >= 2 else None

        outputs = [
            rune.json("show", each["execution_id"])["output"]
            for each in until(both, "handlers of the missing and of the failed execution have ended")
        ]
        assert sorted((each["kind"], each["execution"]["id"]) for each in outputs) == [
            ("failure", failed),
            ("missing", None),
        ]

        async def no_row() -> bool | None:
            async with cluster.connect() as (engine, _):
                return await engine.backend.hooks.failed(10) == [] or None

        assert asyncio.run(no_row())
        assert len(handlers()) == 2
