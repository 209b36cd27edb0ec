"""The fleet of a server elsewhere."""

from __future__ import annotations

from rune.cli.remote.asking import epoch
from rune.client.machinery import Worker
from rune.ports.fleet import Member


def member(each: Worker) -> Member:
    """A process as the commands know it."""
    return Member(
        name=each.id,
        host=each.host,
        pid=each.pid,
        roles=tuple(each.roles),
        version=each.version,
        started_at=epoch(each.started_at),
        seen_at=epoch(each.seen_at),
        queues=each.queues,
        types=each.types,
        slots=each.slots,
        busy=each.busy,
        draining=not each.ready,
    )
