"""The row of a start that was written by hand comes before everything else: it alone is enough to go on from."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.hazards.clustered import ask
from tests.integration.cluster.standing import Standing
from tests.integration.embedded.forks import KILLED
from tests.integration.rabbitmq_cluster.plain import Client
from tests.integration.rabbitmq_cluster.standing import declared
from tests.integration.rabbitmq_cluster.test_by_hand import MIDDLE, START, message, new_id, talk
from tests.support.services.postgres import server
from tests.support.services.rabbitmq import broker

PATIENCE = 120.0
WORK = "workflow.execution"


def _rows(crew: Standing, execution: str) -> int:
    name = crew.settings.journal.rpartition("/")[2]
    return int(server().sql(f"SELECT count(*) FROM execution WHERE id = '{execution}'", name))


def _lose_all_work(crew: Standing) -> None:
    vhost = crew.settings.queue.rpartition("/")[2]
    broker().api("DELETE", f"queues/{vhost}/{WORK}/contents")


@pytest.mark.parametrize(
    ("node", "context", "c"),
    [("a", START, {"n": 3}), ("c", {**START, "$b": {"n": 6}}, {"n": 7})],
    ids=["whole", "within"],
)
def test_who_dies_behind_the_row_of_a_start_has_done_nothing_else(
    crew: Standing, node: str, context: dict[str, Any], c: Any
) -> None:
    doomed = crew.fleet.start("worker", RUNE_FAILPOINT="accepted")
    declared(crew.settings.queue)

    async def speak(plain: Client) -> None:
        execution = new_id()
        await plain.publish(message(execution, node, MIDDLE, context))
        assert await asyncio.to_thread(doomed.process.wait, PATIENCE) == KILLED, doomed.said()
        assert _rows(crew, execution) == 1
        assert await ask("KEYS", f"{crew.settings.prefix}*{execution}*") == []
        assert plain.steps(execution) == []

        _lose_all_work(crew)
        crew.worker()
        crew.fleet.start("scheduler")
        told = await plain.completion(execution)
        assert (told["status"], told["final_context"]["$c"]) == ("completed", c)

    talk(crew.settings.queue, speak)
