"""Processes of a server."""

from __future__ import annotations

from rune.cli.remote.connection import RemoteService, epoch
from rune.client.models import Worker
from rune.ports.processes import ProcessInfo


def process_info(each: Worker) -> ProcessInfo:
    return ProcessInfo(
        name=each.id,
        host=each.host,
        pid=each.pid,
        roles=tuple(each.roles),
        version=each.version,
        build=each.build,
        started_at=epoch(each.started_at),
        seen_at=epoch(each.seen_at),
        queues=each.queues,
        types=each.types,
        slots=each.slots,
        busy=each.busy,
        draining=not each.ready,
    )


class RemoteWorkerService(RemoteService):
    """The workers of a server."""

    async def drain(self, worker: str) -> None:
        await self._client.drain_worker(worker)

    async def resume(self, worker: str) -> None:
        await self._client.resume_worker(worker)
