"""A master that is not Rune's and reads the queues of statuses and completions by name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from rune.adapters.rabbitmq.topology import Topology, definitions, roles, user_name
from tests.integration.cluster.external_messages import message
from tests.support.amqp_client import open_client
from tests.support.api_server import running_server
from tests.support.backends import Backend, backends, open_engines, stores
from tests.support.services.rabbitmq import broker
from tests.support.workflows import edit, workflow

EXECUTIONS = 20
EVENTS = ("workflow.node.status", "workflow.completion")


@backends("rabbitmq")
def test_master_gets_every_message_beside_an_api_that_does_not_consume(
    backend: Backend, tmp_path: Path
) -> None:
    async def go() -> None:
        settings = msgspec.structs.replace(backend.settings, nodes=(), consume_statuses=False)
        async with (
            backend.open(in_place=False),
            running_server(tmp_path, on=settings, working=False) as server,
            open_client(backend.settings.queue) as client,
        ):
            started = [
                await server.client.start_definition(workflow("start>a a>b", a=edit(n=1), b=edit(n=2)))
                for _ in range(EXECUTIONS)
            ]
            for each in started:
                await client.wait_for_completion(each.id, statuses=4)
                assert sorted(client.steps(each.id)) == [
                    (node, status) for node in "ab" for status in ("running", "success")
                ]
                assert (await server.client.execution(each.id)).status == "completed"

    asyncio.run(go())


def test_external_user_starts_an_execution_and_reads_all_about_it(tmp_path: Path) -> None:
    """With the definitions file alone: the program declares nothing."""
    passwords = {"worker": "w", "master": "m", "external": "e"}
    topology = Topology(consume_statuses=False)
    with broker().vhost() as vhost:
        broker().api("POST", "definitions", definitions(topology, vhost, passwords))
        urls = {role: broker().url(vhost, user_name(role), word) for role, word in passwords.items()}
        settings = msgspec.structs.replace(stores(tmp_path), queue=urls["worker"], consume_statuses=False)

        async def go() -> None:
            async with open_engines(settings, count=1), open_client(urls["external"]) as client:
                execution = "external-1"
                made = {"nodes": [{"id": "a", "type": "noop"}], "edges": []}
                await client.publish(message(execution, "a", made, {"$trigger": {"v": 1}}))
                done = await client.wait_for_completion(execution, statuses=2)
                assert done["final_context"]["$a"] == {"v": 1}

        asyncio.run(go())


@pytest.mark.parametrize("consumes", [True, False])
def test_only_the_program_that_replaces_api_processes_has_a_user(consumes: bool) -> None:
    assert ("external" in roles(Topology(consume_statuses=consumes))) is not consumes


@pytest.mark.parametrize("consumes", [True, False])
def test_rights_follow_the_setting(consumes: bool) -> None:
    master = roles(Topology(consume_statuses=consumes))["master"]
    assert [each in master.read for each in EVENTS] == [consumes] * 2
    assert [each in master.publish for each in EVENTS] == [True] * 2
