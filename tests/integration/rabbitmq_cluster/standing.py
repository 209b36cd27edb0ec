"""A fleet over RabbitMQ that stands for a whole session of tests: two workers, a scheduler, and whom nodes call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.acceptance.cli.process import until
from tests.integration.cluster.standing import Standing, standing_on, stores
from tests.support.services.rabbitmq import broker


@contextmanager
def standing(
    folder: Path,
    *,
    in_place: bool,
    workers: int = 2,
    schedulers: int = 1,
    **more: Any,
) -> Iterator[Standing]:
    """While the block runs. `more`: settings of all its processes."""
    with broker().vhost() as vhost:
        settings = replace(stores(folder), queue=broker().url(vhost), **more)
        crew = {"workers": workers, "schedulers": schedulers}
        with standing_on(settings, in_place=in_place, **crew, **more) as made:
            if workers:
                declared(settings.queue)
            yield made


def declared(url: str) -> None:
    """Until a worker has set the broker up, which it does when it connects, after it has said that it is ready."""
    vhost = url.rpartition("/")[2]

    def look() -> bool | None:
        names = {each["name"] for each in broker().api("GET", f"queues/{vhost}")}
        return "workflow.node.status" in names or None

    until(look, "the broker is set up")
