"""A master that is not Rune's and reads the queues of statuses and completions by name."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from rune.adapters.rabbitmq.topology import Topology, roles
from tests.support.amqp_client import open_client
from tests.support.api_server import running_server
from tests.support.backends import Backend, backends
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


@pytest.mark.parametrize("consumes", [True, False])
def test_only_the_program_that_replaces_api_processes_has_a_user(consumes: bool) -> None:
    found = roles(Topology(consume_statuses=consumes))
    assert ("external" in found) is not consumes
    if not consumes:
        assert found["external"].read == EVENTS
        assert found["external"].publish == ("workflow.execution",)


@pytest.mark.parametrize("consumes", [True, False])
def test_rights_follow_the_setting(consumes: bool) -> None:
    master = roles(Topology(consume_statuses=consumes))["master"]
    assert [each in master.read for each in EVENTS] == [consumes] * 2
    assert [each in master.publish for each in EVENTS] == [True] * 2
