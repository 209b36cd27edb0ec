"""The `cluster` fixture: worker and scheduler processes over Redis or RabbitMQ.

`@clusters("redis-in_place", "rabbitmq-travelling")` runs a test once per cluster. The tests of a folder share a cluster
as long as they follow each other; `tests/support/grouping.py` keeps them in one process of pytest-xdist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rune.bootstrap import open_reader, running_engine
from rune.runtime.engine import Engine
from rune.runtime.queries.reader import ExecutionReader
from rune.settings import Settings
from tests.acceptance.conformance.case import Case
from tests.acceptance.conformance.stubs import MailSink, stub_servers
from tests.support.backends import NODES, stores
from tests.support.cli_process import until
from tests.support.services.fleet import Fleet, Process, fleet
from tests.support.services.rabbitmq import broker
from tests.support.services.redis_cluster import redis_cluster_servers

CLUSTERS: dict[str, dict[str, Any]] = {
    "redis-in_place": {"in_place": True},
    "redis-travelling": {"in_place": False},
    "redis-alone": {"in_place": True, "workers": 1},
    "redis-four": {"in_place": True, "workers": 4},
    "redis-sent": {"in_place": True, "workers": 4, "sticky": "off"},
    "redis-single": {"in_place": True, "workers": 4, "chunk": 1},
    "redis-cluster": {"in_place": False},
    "rabbitmq-in_place": {"in_place": True},
    "rabbitmq-travelling": {"in_place": False},
    "rabbitmq-quorum": {"in_place": False, "queue_kind": "quorum"},
    "rabbitmq-inline": {"in_place": False, "wire_inline": True, "wire_bytes": 300_000},
    "rabbitmq-sticky": {"in_place": True, "workers": 4, "sticky": "on"},
    "rabbitmq-batched": {"in_place": False, "statuses": "batched", "workers": 1},
}
"""Options of `open_cluster`. redis-cluster: Redis has three masters. in_place: a worker runs pure nodes where their
predecessors ran; otherwise every token goes through the queue. sent: no worker goes on with the only successor of a
node. single: items are not handled in chunks. inline: messages contain definition and context."""


class Cluster:
    """Processes over shared stores, and the mail server that their nodes use."""

    def __init__(self, fleet: Fleet, sink: MailSink) -> None:
        self.fleet = fleet
        self.settings = fleet.settings
        self.sink = sink

    def effects(self) -> Counter[str]:
        """Count the effects by execution, node and attempt."""
        ledger = Path(self.fleet.environment["RUNE_TEST_LEDGER"])
        return Counter(ledger.read_text().split() if ledger.exists() else [])

    def start_worker(self, *arguments: str, **environment: str) -> Process:
        """Start one more worker and wait until it is ready."""
        made = self.fleet.start("worker", *arguments, **environment)
        made.wait_ready()
        return made

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[tuple[Engine, ExecutionReader]]:
        """Open an engine that starts executions and runs no nodes, and a reader."""
        async with (
            running_engine(self.settings, working=False) as engine,
            open_reader(self.settings) as reader,
        ):
            yield engine, reader


@contextmanager
def node_environment(folder: Path) -> Iterator[tuple[dict[str, str], MailSink]]:
    """Start the servers that nodes call; yield the environment of the processes and the mail sink."""
    with stub_servers(Case("mail", "", ())) as servers:
        environment = {
            "RUNE_NODES": ",".join(NODES),
            "RUNE_HTTP_ALLOW": "127.0.0.1",
            "RUNE_SMTP_URL": servers.smtp_url,
            "RUNE_TEST_LEDGER": str(folder / "ledger"),
        }
        yield environment, servers.sink


@contextmanager
def open_cluster(
    folder: Path, backend: str, *, workers: int = 2, schedulers: int = 1, redis_url: str = "", **options: Any
) -> Iterator[Cluster]:
    """Start a cluster over unused stores, `redis` or `rabbitmq`. `redis_url`: another than the shared Redis server.
    `options`: settings of all its processes."""
    with ExitStack() as stack:
        settings = stores(folder, redis_url)
        if backend == "rabbitmq":
            vhost = stack.enter_context(broker().vhost())
            given = {name: value for name, value in options.items() if name != "in_place"}
            settings = replace(settings, queue=broker().url(vhost), **given)
        environment, sink = stack.enter_context(node_environment(folder))
        environment |= {f"RUNE_{name.upper()}": str(value).lower() for name, value in options.items()}
        made = stack.enter_context(
            fleet(folder, settings, workers=workers, schedulers=schedulers, environment=environment)
        )
        if backend == "rabbitmq" and workers:
            wait_until_declared(settings)
        yield Cluster(made, sink)


def wait_until_declared(settings: Settings) -> None:
    """Wait until a worker has declared the queues. It does so when it connects, which may be after it is ready."""
    vhost = settings.queue.rpartition("/")[2]

    def declared() -> bool | None:
        names = {each["name"] for each in broker().api("GET", f"queues/{vhost}")}
        return "workflow.node.status" in names or None

    until(declared, "the queues are declared")


def clusters(*names: str) -> pytest.MarkDecorator:
    """Run a test on these clusters (keys of `CLUSTERS`)."""
    return pytest.mark.parametrize("cluster", names, indirect=True)


@pytest.fixture(scope="package")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster that the test's parameter names; the tests of a package share it."""
    backend, _, kind = request.param.partition("-")
    folder = tmp_path_factory.mktemp("cluster")
    redis_url = redis_cluster_servers().url if (backend, kind) == ("redis", "cluster") else ""
    with open_cluster(folder, backend, redis_url=redis_url, **CLUSTERS[request.param]) as made:
        yield made
