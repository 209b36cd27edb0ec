"""What must hold of waits and timers wherever they run. Who asks says how a document is run, or an engine opened."""

from __future__ import annotations

import asyncio

from rune.core.execution.fact import ExecutionEnded, NodeSuspended
from rune.testing.harness import Run
from tests.hazards.building import Fields, Opened, Ran, entry, kind, splits, waits, workflow
from tests.hazards.clustered import until
from tests.hazards.hearing import TOKEN, Heard
from tests.unit.nodes.io.calling import serving

HOUR = 3_600_000


async def suspended(run: Run, count: int = 1) -> None:
    """Until so many waits of a run are written down."""

    async def all_wait() -> bool:
        return sum(isinstance(row.fact, NodeSuspended) for row in await run.facts()) >= count

    await until(all_wait)


def waits_that_end_a_split_complete_once(opened: Opened) -> None:
    document = workflow("start>s s>w", s=splits(), w=waits("{{ $item }}"))

    async def go() -> tuple[int, int]:
        async with opened() as engine:
            run = await engine.start(document, {"items": [1, 2, 3]}, fake_time=True)
            end = await run.end()
            return sum(
                isinstance(row.fact, ExecutionEnded) for row in await run.facts()
            ), end.at - run.accepted.at

    ends, took = asyncio.run(go())
    assert ends == 1
    assert took >= 3 * HOUR


def who_wakes_up_uses_the_credential_of_today(opened: Opened, nap: Fields) -> None:
    heard = Heard()

    async def go() -> str:
        async with serving(heard) as port, opened(http_allow=("127.0.0.1",)) as engine:
            services = engine.engine.services
            await services.credentials.add("shop", "bearer", {"token": f"{TOKEN}-1"})
            call = {**kind("http", url=f"http://127.0.0.1:{port}/"), "credentials": "shop"}
            run = await engine.start(workflow("start>a a>nap nap>b", a=call, nap=nap, b=call))
            await suspended(run)
            await services.credentials.rotate("shop", {"token": f"{TOKEN}-2"})
            return (await run.end()).status

    assert asyncio.run(go()) == "completed"
    assert [headers["authorization"][-1] for headers, _ in heard.requests] == ["1", "2"]


def an_amount_beyond_all_dates_fails_its_node(ran: Ran) -> None:
    told = ran(workflow("start>w", w=waits("{{ $trigger.n }}", "days")), {"n": 10**15})
    assert (told["status"], entry(told, "w")["status"]) == ("halted", "failed")
