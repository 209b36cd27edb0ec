"""A fleet that stands for a whole session of tests: two workers, a scheduler, and the servers that nodes call."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from rune.bootstrap import open_reader, running_engine
from rune.runtime.engine import Engine
from rune.runtime.queries.reader import ExecutionReader
from rune.settings import Settings
from tests.acceptance.conformance.case import Case
from tests.acceptance.conformance.stubs import MailSink, surroundings
from tests.support.services.databases import dsn_of, ready
from tests.support.services.fleet import Fleet, Process, fleet
from tests.support.services.redis_server import redis_server

NODES = (
    "tests.simulation.effect_nodes",
    "tests.integration.embedded.ledger_nodes",
    "tests.integration.cluster.place_nodes",
)
_prefixes = count(1)


def stores(folder: Path) -> Settings:
    """A database and a corner of Redis that nobody has used."""
    ready()
    url = redis_server().url
    return Settings(
        home=str(folder),
        journal=dsn_of(folder),
        state=url,
        queue=url,
        prefix=f"fleet{next(_prefixes)}",
        nodes=NODES,
        http_allow=("127.0.0.1",),
    )


class Standing:
    """The fleet, and where its mails go."""

    def __init__(self, fleet: Fleet, sink: MailSink) -> None:
        self.fleet = fleet
        self.settings = fleet.settings
        self.sink = sink

    def effects(self) -> Counter[str]:
        """How often each effect was made, by execution, node and attempt."""
        ledger = Path(self.fleet.environment["RUNE_TEST_LEDGER"])
        return Counter(ledger.read_text().split() if ledger.exists() else [])

    def worker(self, *arguments: str, **more: str) -> Process:
        """One more, ready."""
        made = self.fleet.start("worker", *arguments, **more)
        made.wait_ready()
        return made

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[tuple[Engine, ExecutionReader]]:
        """Somebody who starts and asks, and runs no node itself; and somebody who looks."""
        async with running_engine(self.settings, working=False) as engine, open_reader(self.settings) as look:
            yield engine, look


@contextmanager
def called(folder: Path) -> Iterator[tuple[dict[str, str], MailSink]]:
    """Whom nodes call, while the block runs: how processes reach them, and where the mails go."""
    with surroundings(Case("mail", "", ())) as around:
        environment = {
            "RUNE_NODES": ",".join(NODES),
            "RUNE_HTTP_ALLOW": "127.0.0.1",
            "RUNE_SMTP_URL": around.smtp_url,
            "RUNE_TEST_LEDGER": str(folder / "ledger"),
        }
        yield environment, around.sink


@contextmanager
def standing_on(
    settings: Settings, *, in_place: bool, workers: int = 2, schedulers: int = 1, **more: Any
) -> Iterator[Standing]:
    """A fleet on these stores while the block runs. `more`: settings of all its processes."""
    folder = Path(settings.home)
    with called(folder) as (environment, sink):
        for name, value in {"in_place": in_place, **more}.items():
            environment[f"RUNE_{name.upper()}"] = str(value).lower()
        with fleet(folder, settings, workers=workers, schedulers=schedulers, environment=environment) as made:
            yield Standing(made, sink)


@contextmanager
def standing(folder: Path, *, in_place: bool, workers: int = 2) -> Iterator[Standing]:
    """While the block runs."""
    with standing_on(stores(folder), in_place=in_place, workers=workers) as made:
        yield made
