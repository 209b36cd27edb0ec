"""A fleet whose processes have the rights of their role and no others, as the definitions file gives them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rune.adapters.rabbitmq.topology import Topology, definitions, user_name
from tests.acceptance.cli.here import Here
from tests.integration.cluster.commands import GATED, ended, here, named, waits
from tests.integration.cluster.standing import stores
from tests.integration.rabbitmq_cluster.plain import client
from tests.integration.rabbitmq_cluster.test_commands import deployed
from tests.support.services.fleet import Fleet, fleet
from tests.support.services.rabbitmq import broker
from tests.unit.core.documents import document, keep, node

Limited = tuple[Fleet, Here, str]
PASSWORDS = {"worker": "w w", "master": "m/m"}


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    """A worker and a scheduler, the command line as the master, and how somebody with all rights reaches the broker."""
    folder: Path = tmp_path_factory.mktemp("limited")
    with broker().vhost() as vhost:
        broker().api("POST", "definitions", definitions(Topology(), vhost, PASSWORDS))
        urls = {role: broker().url(vhost, user_name(role), word) for role, word in PASSWORDS.items()}
        settings = replace(stores(folder), queue=urls["worker"])
        with fleet(folder, settings, workers=1, environment={"RUNE_LEGACY_CONSUME": "true"}) as made:
            made.environment["RUNE_QUEUE"] = urls["master"]
            yield made, here(made), broker().url(vhost)


def test_the_master_starts_signals_and_cancels(limited: Limited) -> None:
    fleet, rune, _ = limited
    deployed(rune, named(GATED, "limited"))
    first, second = (rune.json("start", "limited", "--input", '{"n": 1}')["execution_id"] for _ in range(2))
    for each in (first, second):
        waits(rune, each)
    rune.said("signal", first, "go")
    rune.said("cancel", second)
    assert ended(rune, first)["status"] == "completed"
    assert ended(rune, second)["status"] == "cancelled"
    assert [each.said() for each in fleet.processes if "refused" in each.said().lower()] == []


def test_every_end_is_told_whoever_brought_it(limited: Limited) -> None:
    _, rune, anybody = limited
    deployed(rune, named(GATED, "limited-told"))

    async def told() -> dict[str, Any]:
        async with client(anybody) as plain:
            execution = (await asyncio.to_thread(rune.json, "start", "limited-told"))["execution_id"]
            await asyncio.to_thread(waits, rune, execution)
            await asyncio.to_thread(rune.said, "cancel", execution)
            return await plain.completion(execution)

    assert asyncio.run(told())["status"] == "cancelled"


def test_what_another_engine_runs_goes_from_the_master_to_a_worker_in_its_place(limited: Limited) -> None:
    _, rune, anybody = limited
    made = document([node("start", "manual"), keep("one", 1)], "start>one")
    deployed(rune, made | {"id": "limited-legacy", "settings": {"executor": "legacy"}})

    async def told() -> dict[str, Any]:
        async with client(anybody) as plain:
            started = await asyncio.to_thread(rune.json, "start", "limited-legacy")
            return await plain.completion(started["execution_id"])

    assert asyncio.run(told())["status"] == "completed"
