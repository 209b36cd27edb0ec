"""Triggers on a cluster: several schedulers and servers start each tick and delivery once."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import msgspec

from rune.client import Client
from rune.core.webhooks import sign
from tests.integration.triggers.scheduler_harness import DEADLINE, MINUTE, moment, open_harness
from tests.support.backends import stores
from tests.support.cli_process import until
from tests.support.services.fleet import Process, fleet
from tests.support.trigger_workflows import schedule_workflow, webhook_workflow

NOON = moment("2026-05-01T12:00:00")
BODY = b'{"order": 7}'


def test_schedulers_with_clock_skew_start_each_tick_once(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(stores(tmp_path), nodes=())

    async def go() -> None:
        async with (
            open_harness(tmp_path, NOON, settings=settings) as one,
            open_harness(tmp_path, NOON, settings=settings, roles=frozenset()) as two,
        ):
            await one.deploy(schedule_workflow(amount=1, unit="minutes", overlap="allow", catch_up="all"))
            schedulers = [
                (one.clock, one.new_scheduler()),
                (two.clock, two.new_scheduler()),
                (two.clock, two.new_scheduler()),
            ]
            for number in range(1, 8):
                one.clock.set(NOON + number * MINUTE)
                two.clock.set(NOON + number * MINUTE + 900 - 3_000 * (number % 2))
                await asyncio.gather(*(scheduler.turn() for _, scheduler in schedulers))
            two.clock.set(NOON + 7 * MINUTE + 50)
            for _ in range(3):
                await asyncio.gather(*(scheduler.turn() for _, scheduler in schedulers))
            started = await one.started_times()
            assert sorted(started) == [f"2026-05-01T12:0{number}:00Z" for number in range(1, 8)]
            for each in await one.executions():
                await (await one.engine.wait_for(each.id))

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE):
            await go()

    asyncio.run(bounded())


def _times(client: Client) -> list[str]:
    """Return the scheduled times of all executions."""
    with httpx.Client(base_url=str(client._http.base_url), trust_env=False) as http:
        found = [each.execution_id for each in client.executions(workflow="report", page=1_000)]
        return [http.get(f"/api/v1/executions/{each}/input").json()["scheduled_at"] for each in found]


def _deliver(servers: list[Process], path: str, headers: dict[str, str]) -> set[str]:
    """Send the same delivery to every server five times, concurrently."""

    async def go() -> set[str]:
        async with httpx.AsyncClient(timeout=DEADLINE, trust_env=False) as http:
            sent: list[Any] = [
                http.post(each.url + path, content=BODY, headers=headers)
                for each in servers
                for _ in range(5)
            ]
            answers = await asyncio.gather(*sent)
        assert {each.status_code for each in answers} <= {200, 202}, [each.text for each in answers]
        return {each.json()["execution_id"] for each in answers}

    return asyncio.run(go())


def test_ticks_and_deliveries_start_once_across_processes(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(stores(tmp_path), nodes=())
    with fleet(tmp_path, settings, workers=1, schedulers=2) as made:
        servers = [made.api(), made.api()]
        with Client(servers[0].url, timeout=DEADLINE) as client:
            client.deploy(schedule_workflow(amount=1, unit="seconds", overlap="allow", catch_up="all"))
            client.deploy(webhook_workflow(auth="hmac"))
            until(lambda: len(_times(client)) >= 3 or None, "ticks are started")
            made.of("scheduler")[0].kill()
            known = len(_times(client))
            until(lambda: len(_times(client)) >= known + 3 or None, "the other scheduler continues")
            (clock,) = client.triggers("report")
            client.enable_trigger(clock.id, enabled=False)
            times = sorted(_times(client))
            assert len(times) == len(set(times))

            (hook,) = client.triggers("orders")
            secret = client.rotate_trigger(hook.id, secret=True).new_secret
            assert secret is not None
            assert hook.webhook is not None
            assert hook.webhook.path is not None
            sent = str(int(time.time()))
            signed = {"X-Rune-Timestamp": sent, "X-Rune-Signature": sign(secret, sent, BODY)}
            named = {**signed, "X-Delivery-Id": "d1", "Content-Type": "application/json"}
            (execution,) = _deliver(servers, hook.webhook.path, named)
            for each in servers:
                other = {**named, "X-Delivery-Id": "d2"}
                response = httpx.post(
                    each.url + hook.webhook.path, content=BODY, headers=other, trust_env=False
                )
                assert response.status_code == 401
            assert client.wait(execution, DEADLINE).status == "completed"
            assert [each.execution_id for each in client.executions(workflow="orders")] == [execution]
            seconds = [int(moment(each.removesuffix("Z")) / 1000) for each in times]
            assert seconds == list(range(seconds[0], seconds[-1] + 1))
