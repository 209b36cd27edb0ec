"""Commands while a store accepts connections and answers nothing: each ends, and names the store if it needs it."""

from __future__ import annotations

import asyncio
import json
import pathlib
import subprocess
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import pytest
from msgspec.structs import replace

from rune.adapters.postgres.schema import migrate
from tests.support.backends import stores
from tests.support.cli_process import Rune
from tests.support.cluster_cli import GATED, command_line, until_waiting, with_id
from tests.support.services.fleet import Fleet, fleet
from tests.support.services.postgres import new_server
from tests.support.services.rabbitmq import mortal_broker
from tests.support.services.redis_server import RedisServer

pytestmark = pytest.mark.long

BOUND_S = 100.0
"""A command waits for a few replies of a store, 10 s each, or once 30 s for PostgreSQL; the rest is the machine."""

COMMANDS = {
    "start": "start gated --json",
    "cancel": "cancel {cancelled} --json",
    "signal": "signal {signalled} go --json",
    "pause": "pause {paused} --json",
    "dlq": "dlq --json",
    "dlq of streams": "dlq --json",
    "workers": "workers --json",
    "list": "list --json",
}
NEEDS: Mapping[str, tuple[str, ...]] = {
    "Redis": ("signal", "pause", "dlq of streams", "workers"),
    "RabbitMQ": ("signal", "dlq"),
    "PostgreSQL": ("start", "cancel", "signal", "pause", "dlq", "dlq of streams", "list"),
}
"""The commands that exit 3 while a store is frozen; the others exit 0."""


class Store(Protocol):
    def freeze(self) -> None: ...

    def thaw(self) -> None: ...


class Site(NamedTuple):
    """A cluster over stores of its own."""

    fleet: Fleet
    stores: Mapping[str, Store]
    addresses: Mapping[str, str]

    def begin(self, name: str, executions: Mapping[str, str]) -> subprocess.Popen[str]:
        given = {name: each for name, each in self.fleet.environment.items() if name.startswith("RUNE_")}
        if name == "dlq of streams":
            given["RUNE_QUEUE"] = given["RUNE_STATE"]
        words = COMMANDS[name].format_map(executions).split()
        return Rune(pathlib.Path(given.pop("RUNE_HOME")), **given).begin(*words)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("cluster")
    redis, postgres, broker = RedisServer(), new_server(), mortal_broker()
    broker.start()
    journal = postgres.create("frozen")
    asyncio.run(migrate(journal))
    settings = replace(stores(folder, redis.url), journal=journal, queue=broker.url())
    addresses = {
        "Redis": redis.url,
        "RabbitMQ": f"127.0.0.1:{broker.port}",
        "PostgreSQL": f"127.0.0.1:{postgres.port}",
    }
    try:
        with fleet(folder, settings, workers=1) as made:
            file = folder / "gated.json"
            file.write_text(json.dumps(with_id(GATED, "gated")))
            command_line(made).json("deploy", str(file))
            yield Site(made, {"Redis": redis, "RabbitMQ": broker, "PostgreSQL": postgres}, addresses)
    finally:
        redis.stop()


@pytest.mark.parametrize("frozen", NEEDS)
def test_commands_end_while_a_store_is_frozen(frozen: str, site: Site) -> None:
    rune = command_line(site.fleet)
    named = {
        name: rune.json("start", "gated")["execution_id"] for name in ("cancelled", "signalled", "paused")
    }
    for each in named.values():
        until_waiting(rune, each)
    site.stores[frozen].freeze()
    try:
        began = time.monotonic()
        running = {name: site.begin(name, named) for name in COMMANDS}
        ended = {}
        for name, process in running.items():
            out, err = process.communicate(timeout=BOUND_S - (time.monotonic() - began))
            ended[name] = (process.returncode, out, err)
    finally:
        site.stores[frozen].thaw()
        for process in running.values():
            process.kill()
            process.communicate()

    for name, (code, out, err) in ended.items():
        assert code == (3 if name in NEEDS[frozen] else 0), (name, out, err)
    _, out, _ = ended["signal"]
    refusal = json.loads(out)
    assert refusal["status"] == "unavailable"
    message = refusal["problems"][0]["message"]
    assert site.addresses[frozen] in message
    assert "guest" not in message
