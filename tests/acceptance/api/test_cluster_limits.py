"""Limits are shared by two servers on one cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from rune.client import ApiError, AsyncClient
from rune.client.async_client import AsyncRun
from rune.client.models import Limits
from rune.core.definition.parser import parse_document
from rune.core.plan.compiler import compile_definition
from rune.nodes.registry import full_registry
from rune.runtime.services.start_limits import first_queues
from tests.support.api_clients import BOOTSTRAP
from tests.support.api_server import DEADLINE, HELLO, WAITS, RunningServer, running_server
from tests.support.backends import stores


def test_running_limit_is_exact_across_servers(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(stores(tmp_path), nodes=())

    async def go() -> None:
        async with (
            running_server(tmp_path, on=settings, key=BOOTSTRAP) as one,
            running_server(tmp_path, on=settings, key=BOOTSTRAP) as two,
        ):
            await one.deploy(HELLO, WAITS)
            await one.client.limit("waits", Limits(running=5))
            through, refused = await crowd(one, two)
            assert len(through) == 5
            assert {each.code for each in refused} == {"TOO_MANY"}
            listed = [each.execution_id async for each in two.client.executions(workflow="waits")]
            assert sorted(listed) == sorted(each.execution_id for each in through)
            await two.client.signal(through[0].execution_id, "go")
            await two.client.wait(through[0].execution_id, DEADLINE)
            through, refused = await crowd(one, two)
            assert (len(through), len(refused)) == (1, 39)
            await two.client.start("hello")
            await limits_of_a_key(one, two)

    async def bounded() -> None:
        async with asyncio.timeout(3 * DEADLINE):
            await go()

    asyncio.run(bounded())


async def limits_of_a_key(one: RunningServer, two: RunningServer) -> None:
    """Limits that are changed on one server apply on the other."""
    made = await one.client.create_key("ada", "runner", limits=Limits(rate="1/h"))
    async with AsyncClient(two.url, key=made.key) as ada:
        async with asyncio.timeout(DEADLINE):
            while await started(ada):  # a server may cache limits for a second
                pass
            await one.client.limit_key(made.id, Limits(running=50))
            while not await started(ada):
                pass
    assert {each.id: each.limits for each in await two.client.keys()}[made.id] == Limits(running=50)


async def started(client: AsyncClient) -> bool:
    try:
        await client.start("hello")
    except ApiError as refused:
        if refused.code != "TOO_MANY":
            raise
        return False
    return True


async def crowd(*servers: RunningServer) -> tuple[list[AsyncRun], list[ApiError]]:
    """Start 40 executions, alternating between the servers."""
    wanted = [servers[number % len(servers)].client.start("waits") for number in range(40)]
    answers = await asyncio.gather(*wanted, return_exceptions=True)
    through = [each for each in answers if isinstance(each, AsyncRun)]
    return through, [each for each in answers if isinstance(each, ApiError)]


def test_first_queues_are_those_behind_triggers() -> None:
    nodes = [HELLO["nodes"][0], {"id": "a", "type": "log", "parameters": {"message": "x"}, "queue": "slow"}]
    document = {**HELLO, "nodes": [*nodes, {**nodes[1], "id": "b", "queue": "far"}]}
    document["edges"] = [{"src": "in", "dst": "a"}, {"src": "a", "dst": "b"}]
    parsed = parse_document(msgspec.json.encode(document))
    assert parsed.definition is not None
    plan = compile_definition(parsed.definition, full_registry(()).catalogue)
    assert first_queues(plan) == {"slow"}
