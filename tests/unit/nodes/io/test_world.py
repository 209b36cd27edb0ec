"""The world: configured once, opened late, closed with the engine."""

from __future__ import annotations

import asyncio
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from rune.bootstrap import running_engine
from rune.errors import RuneError
from rune.nodes.custom import NodeContext, kind_of
from rune.nodes.custom import node as custom
from rune.nodes.registry import standard_registry
from rune.nodes.resources import NO_RESOURCES, Resources
from rune.settings import load_settings
from rune.testing.harness import run_document
from tests.unit.core.documents import document, node
from tests.unit.nodes.io.calling import local_world


def test_settings_come_from_the_environment(tmp_path: pathlib.Path) -> None:
    given = {
        "RUNE_HTTP_ALLOW": "127.0.0.1,10.0.0.0/8",
        "RUNE_HTTP_POLICY": "allow",
        "RUNE_HTTP_PER_HOST": "5",
        "RUNE_SMTP_URL": "smtps://mail.example.com",
    }

    settings = load_settings(given, tmp_path)

    assert settings.http_allow == ("127.0.0.1", "10.0.0.0/8")
    assert settings.http_policy == "allow"
    assert settings.http_per_host == 5
    assert settings.smtp_url == "smtps://mail.example.com"


def test_a_list_that_means_nothing_is_refused_at_the_start(tmp_path: pathlib.Path) -> None:
    settings = load_settings({"RUNE_HOME": str(tmp_path), "RUNE_HTTP_ALLOW": "a b"}, tmp_path)

    async def start() -> None:
        async with running_engine(settings):
            pass

    with pytest.raises(RuneError, match="neither a host nor a network"):
        asyncio.run(start())


def test_an_unknown_policy_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RuneError, match="http_policy"):
        load_settings({"RUNE_HTTP_POLICY": "anything"}, tmp_path)


def test_there_is_one_client_until_it_is_closed() -> None:
    async def scenario() -> tuple[bool, bool]:
        world = local_world()
        first = world.http()
        same = world.http() is first
        await world.close()
        again = world.http()
        await world.close()
        await world.close()
        return same, again is first

    assert asyncio.run(scenario()) == (True, False)


def test_what_was_never_opened_need_not_be_closed() -> None:
    asyncio.run(Resources().close())


def test_a_call_without_a_world_reaches_nothing() -> None:
    with pytest.raises(RuntimeError, match="no external resources"):
        NO_RESOURCES.http()


def test_who_calls_nobody_loads_no_client() -> None:
    program = (
        "import sys, rune.bootstrap\n"
        "print([name for name in ('aiohttp', 'aiosmtplib', 'yarl', 'idna') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("wanted", "key"), [(True, True), (False, False)])
def test_a_node_may_want_no_key(wanted: bool, key: bool) -> None:
    keys: list[str] = []

    @custom("t.keyed")
    async def keyed(ctx: NodeContext) -> Any:
        keys.append(ctx.idempotency_key)

    kind = kind_of(keyed)
    assert kind is not None
    raw = document([node("start", "input"), node("a", "t.keyed", idempotency_key=wanted)], "start>a")

    run_document(raw, registry=standard_registry().extended([kind]))

    assert [bool(each) for each in keys] == [key]
