"""Completions whose sender died: sent by somebody else, with the same bytes however often."""

from __future__ import annotations

import asyncio
import json

from rune.core.execution.fact import ExecutionEnded
from rune.testing.harness import Harness
from tests.acceptance.cli.process import until
from tests.integration.cluster.commands import GATED, here, named, waits
from tests.integration.cluster.standing import Standing
from tests.integration.embedded.forks import KILLED
from tests.integration.rabbitmq_cluster.plain import client
from tests.integration.rabbitmq_cluster.standing import declared
from tests.support.services.postgres import server

PATIENCE = 120.0


def _left(crew: Standing, execution: str) -> int:
    name = crew.settings.journal.rpartition("/")[2]
    return int(server().sql(f"SELECT count(*) FROM outbox WHERE execution = '{execution}'", name))


def test_the_relay_sends_what_was_owed_and_always_the_same(crew: Standing) -> None:
    """Whoever wrote the terminal row does no more, then a relay dies behind the message; the next sends it again."""
    crew.worker()
    declared(crew.settings.queue)

    async def told() -> tuple[str, list[bytes]]:
        async with crew.asked() as (engine, _), client(crew.settings.queue) as plain:
            run = await Harness(engine, None).start(named(GATED, "owed"), {"n": 1})
            await asyncio.to_thread(waits, here(crew.fleet), run.id)
            await engine.backend.journal.record(
                run.id, [ExecutionEnded(engine.backend.clock.now(), "cancelled")]
            )
            forgetful = crew.fleet.start("scheduler", RUNE_FAILPOINT="relayed")
            assert await asyncio.to_thread(forgetful.process.wait, PATIENCE) == KILLED, forgetful.said()
            crew.fleet.start("scheduler")
            async with asyncio.timeout(PATIENCE):
                while len(plain.completions(run.id)) < 2:
                    await plain.came()
            return run.id, plain.completions(run.id)

    execution, bodies = asyncio.run(told())
    assert len(set(bodies)) == 1
    ended = json.loads(bodies[0])
    assert (ended["status"], ended["final_context"]["$first"]) == ("cancelled", {"k": 1})
    until(lambda: _left(crew, execution) == 0 or None, "nothing is left to do")
