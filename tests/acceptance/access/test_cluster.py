"""Keys and grants on several servers of one cluster."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from rune.bootstrap import open_access
from tests.acceptance.access.test_grants import ended, grants, shop, uses
from tests.support.api_clients import API, BOOTSTRAP, RoleClients
from tests.support.api_server import DEADLINE, running_server
from tests.support.backends import stores

LIST = f"{API}/executions"


def test_keys_and_grants_hold_on_every_server(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(stores(tmp_path), nodes=("tests.acceptance.access.credential_nodes",))

    async def go() -> None:
        async with (
            running_server(tmp_path, on=settings, key=BOOTSTRAP) as one,
            running_server(tmp_path, on=settings, key=BOOTSTRAP) as two,
            AsyncExitStack() as stack,
        ):
            ada = await RoleClients(one, stack).connect("ada", "runner")
            (made,) = await two.client.keys()
            there = await RoleClients(two, stack).with_key(
                ada.headers["authorization"].removeprefix("Bearer ")
            )
            await shop(one, uses("orders"))
            started = (await there.post(f"{API}/workflows/orders/executions")).json()["execution_id"]
            assert await ended(one, started) == ("completed", None)
            await grants(two, withdraw=("everyone",))
            started = (await there.post(f"{API}/workflows/orders/executions")).json()["execution_id"]
            assert await ended(one, started) == ("halted", "CREDENTIAL_DENIED")
            await one.client.revoke_key(made.id)
            while (await there.get(LIST)).status_code == 200:
                pass  # the key is cached for half a second at most; the deadline of the test bounds the loop
            assert (await ada.get(LIST)).status_code == 401
            async with open_access(settings) as opened:
                actions = [each.action for each in await opened.log.read()]
            # A deploy has a second entry with its result, and rejected requests are counted.
            assert [each for each in dict.fromkeys(actions[::-1]) if each != "access.refused"] == [
                "key.create",
                "workflow.deploy",
                "credential.add",
                "credential.withdraw",
                "key.revoke",
            ]

    async def bounded() -> None:
        async with asyncio.timeout(3 * DEADLINE):
            await go()

    asyncio.run(bounded())
