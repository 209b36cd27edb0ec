"""External resources: settings, the shared HTTP client and its lifetime."""

from __future__ import annotations

import asyncio
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from rune.bootstrap import running_engine
from rune.errors import RuneError
from rune.nodes.base import NO_RESOURCES, Resources
from rune.nodes.custom import NodeContext, kind_of
from rune.nodes.custom import node as custom
from rune.nodes.registry import standard_registry
from rune.settings import load_settings
from rune.testing.harness import run_document
from tests.support.documents import document, node
from tests.support.io_nodes import local_resources


def test_settings_are_read_from_environment(tmp_path: pathlib.Path) -> None:
    environment = {
        "RUNE_HTTP_ALLOW": "127.0.0.1,10.0.0.0/8",
        "RUNE_HTTP_POLICY": "allow",
        "RUNE_HTTP_PER_HOST": "5",
        "RUNE_SMTP_URL": "smtps://mail.example.com",
    }

    settings = load_settings(environment, tmp_path)

    assert settings.http_allow == ("127.0.0.1", "10.0.0.0/8")
    assert settings.http_policy == "allow"
    assert settings.http_per_host == 5
    assert settings.smtp_url == "smtps://mail.example.com"


def test_invalid_allow_list_fails_start(tmp_path: pathlib.Path) -> None:
    settings = load_settings({"RUNE_HOME": str(tmp_path), "RUNE_HTTP_ALLOW": "a b"}, tmp_path)

    async def start() -> None:
        async with running_engine(settings):
            pass

    with pytest.raises(RuneError, match="neither a host nor a network"):
        asyncio.run(start())


def test_unknown_policy_is_rejected(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RuneError, match="http_policy"):
        load_settings({"RUNE_HTTP_POLICY": "anything"}, tmp_path)


def test_http_client_is_shared_until_closed() -> None:
    async def scenario() -> tuple[bool, bool]:
        resources = local_resources()
        first = resources.http()
        same = resources.http() is first
        await resources.close()
        reopened = resources.http()
        await resources.close()
        await resources.close()
        return same, reopened is first

    assert asyncio.run(scenario()) == (True, False)


def test_close_without_open_client() -> None:
    asyncio.run(Resources().close())


def test_no_resources_raises() -> None:
    with pytest.raises(RuntimeError, match="no external resources"):
        NO_RESOURCES.http()


def test_bootstrap_imports_no_client_library() -> None:
    program = (
        "import sys, rune.bootstrap\n"
        "print([name for name in ('aiohttp', 'aiosmtplib', 'yarl', 'idna') if name in sys.modules])"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert process.stdout.strip() == "[]"


@pytest.mark.parametrize(("enabled", "has_key"), [(True, True), (False, False)])
def test_idempotency_key_can_be_disabled(enabled: bool, has_key: bool) -> None:
    keys: list[str] = []

    @custom("t.keyed")
    async def keyed(ctx: NodeContext) -> Any:
        keys.append(ctx.idempotency_key)

    kind = kind_of(keyed)
    assert kind is not None
    raw = document([node("start", "input"), node("a", "t.keyed", idempotency_key=enabled)], "start>a")

    run_document(raw, registry=standard_registry().extended([kind]))

    assert [bool(each) for each in keys] == [has_key]
