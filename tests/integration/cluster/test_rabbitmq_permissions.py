"""A cluster whose processes have only the broker permissions of their role."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rune.adapters.rabbitmq.topology import Topology, definitions, user_name
from tests.integration.cluster.test_rabbitmq_commands import deploy
from tests.support.amqp_client import open_client
from tests.support.backends import stores
from tests.support.cluster_cli import GATED, command_line, until_ended, until_waiting, with_id
from tests.support.documents import document, edit, node
from tests.support.in_process_cli import InProcessCli
from tests.support.services.fleet import Fleet, fleet
from tests.support.services.rabbitmq import broker

Limited = tuple[Fleet, InProcessCli, str]
PASSWORDS = {"worker": "w w", "master": "m/m"}


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    """A worker and a scheduler, the command line of the master, and the URL of a user with all permissions."""
    folder: Path = tmp_path_factory.mktemp("limited")
    with broker().vhost() as vhost:
        broker().api("POST", "definitions", definitions(Topology(), vhost, PASSWORDS))
        urls = {role: broker().url(vhost, user_name(role), word) for role, word in PASSWORDS.items()}
        settings = replace(stores(folder), queue=urls["worker"])
        with fleet(folder, settings, workers=1, environment={"RUNE_LEGACY_CONSUME": "true"}) as made:
            made.environment["RUNE_QUEUE"] = urls["master"]
            yield made, command_line(made), broker().url(vhost)


def test_master_can_start_signal_and_cancel(limited: Limited) -> None:
    fleet, rune, _ = limited
    deploy(rune, with_id(GATED, "limited"))
    first, second = (rune.json("start", "limited", "--input", '{"n": 1}')["execution_id"] for _ in range(2))
    for each in (first, second):
        until_waiting(rune, each)
    rune.output("signal", first, "go")
    rune.output("cancel", second)
    assert until_ended(rune, first)["status"] == "completed"
    assert until_ended(rune, second)["status"] == "cancelled"
    assert [each.output() for each in fleet.processes if "refused" in each.output().lower()] == []


def test_cancel_by_master_publishes_completion(limited: Limited) -> None:
    _, rune, url = limited
    deploy(rune, with_id(GATED, "limited-cancelled"))

    async def completion() -> dict[str, Any]:
        async with open_client(url) as client:
            execution = (await asyncio.to_thread(rune.json, "start", "limited-cancelled"))["execution_id"]
            await asyncio.to_thread(until_waiting, rune, execution)
            await asyncio.to_thread(rune.output, "cancel", execution)
            return await client.wait_for_completion(execution)

    assert asyncio.run(completion())["status"] == "cancelled"


def test_legacy_start_of_master_is_consumed_by_worker(limited: Limited) -> None:
    _, rune, url = limited
    made = document([node("start", "manual"), edit("one", 1)], "start>one")
    deploy(rune, made | {"id": "limited-legacy", "settings": {"executor": "legacy"}})

    async def completion() -> dict[str, Any]:
        async with open_client(url) as client:
            started = await asyncio.to_thread(rune.json, "start", "limited-legacy")
            return await client.wait_for_completion(started["execution_id"])

    assert asyncio.run(completion())["status"] == "completed"
