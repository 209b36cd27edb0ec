"""A fleet over RabbitMQ that stands for a whole session of tests: two workers, a scheduler, and whom nodes call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from tests.cluster.standing import NODES, Standing, stores
from tests.conformance.case import Case
from tests.conformance.stubs import surroundings
from tests.services.fleet import fleet
from tests.services.rabbitmq import Broker, broker


@contextmanager
def standing(
    folder: Path,
    *,
    in_place: bool,
    workers: int = 2,
    carrier: Broker | None = None,
    url: str | None = None,
    **more: str,
) -> Iterator[Standing]:
    """While the block runs. `carrier`: another broker than the shared one; `url`: another way to it."""
    broken = carrier or broker()
    with broken.vhost() as vhost, surroundings(Case("mail", "", ())) as around:
        settings = replace(stores(folder), queue=url or broken.url(vhost))
        environment = {
            "RUNE_NODES": ",".join(NODES),
            "RUNE_HTTP_ALLOW": "127.0.0.1",
            "RUNE_SMTP_URL": around.smtp_url,
            "RUNE_IN_PLACE": "true" if in_place else "false",
            "RUNE_TEST_LEDGER": str(folder / "ledger"),
            **more,
        }
        with fleet(folder, settings, workers=workers, environment=environment) as made:
            yield Standing(made, around.sink)
