"""Several servers on one cluster: a key is known to all of them, and revoked for all of them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from rune.bootstrap import open_access
from tests.acceptance.access.asking import API, BOOTSTRAP, Crowd
from tests.acceptance.access.test_grants import ended, grants, shop, uses
from tests.acceptance.api.running import DEADLINE, served
from tests.integration.cluster.standing import stores

LIST = f"{API}/executions"


def test_a_key_is_known_and_revoked_everywhere_and_grants_hold_for_every_worker(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(stores(tmp_path), nodes=("tests.acceptance.access.use_nodes",))

    async def go() -> None:
        async with (
            served(tmp_path, on=settings, key=BOOTSTRAP) as one,
            served(tmp_path, on=settings, key=BOOTSTRAP) as two,
            AsyncExitStack() as stack,
        ):
            ada = await Crowd(one, stack).join("ada", "runner")
            (made,) = await two.client.keys()
            there = await Crowd(two, stack).with_key(ada.headers["authorization"].removeprefix("Bearer "))
            await shop(one, uses("orders"))
            started = (await there.post(f"{API}/workflows/orders/executions")).json()["execution_id"]
            assert await ended(one, started) == ("completed", None)
            await grants(two, withdraw=("everyone",))
            started = (await there.post(f"{API}/workflows/orders/executions")).json()["execution_id"]
            assert await ended(one, started) == ("halted", "CREDENTIAL_DENIED")
            await one.client.revoke_key(made.id)
            while (await there.get(LIST)).status_code == 200:
                pass  # it is believed for half a second at most; the deadline of the test ends what is not
            assert (await ada.get(LIST)).status_code == 401
            async with open_access(settings) as opened:
                actions = [each.action for each in await opened.log.read()]
            assert actions[::-1] == [
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
