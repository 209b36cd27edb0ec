"""Operations on workers: list the processes, drain a worker, and let it receive work again."""

from __future__ import annotations

import logging
import os

from rune.errors import RuneError
from rune.ports.processes import ProcessInfo, ProcessRegistry
from rune.ports.queue import Queue
from rune.runtime.services.audit_log import AuditLog, audited

log = logging.getLogger("rune.worker")


class DrainControl:
    """Stops and resumes the deliveries to this process. Nodes that run go on: a drained worker finishes what it holds
    and then stays idle."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.draining = False

    async def set_draining(self, draining: bool) -> None:
        """Receive nothing more, or receive again. Repeating it changes nothing."""
        if draining == self.draining:
            return
        self.draining = draining
        if draining:
            log.info("draining: this worker receives no more work and finishes what it holds")
            await self._queue.pause()
        else:
            log.info("this worker receives work again")
            await self._queue.resume()


class UnknownWorkerError(RuneError):
    """No process has this id."""

    code = "UNKNOWN_WORKER"


class NotAWorkerError(RuneError):
    """The process runs no nodes."""

    code = "REFUSED"


class WorkerService:
    """Drains workers. On a cluster the request is stored and carried out by the worker with its next heartbeat; without
    a registry the only process is this one."""

    def __init__(
        self, registry: ProcessRegistry | None, drain_control: DrainControl, audit_log: AuditLog
    ) -> None:
        self.audit_log = audit_log
        self._registry = registry
        self._drain_control = drain_control

    @audited("worker.drain", "worker")
    async def drain(self, worker: str) -> None:
        """Let a worker receive nothing more. It finishes what it holds, and then stays idle."""
        await self._ask(worker, draining=True)

    @audited("worker.resume", "worker")
    async def resume(self, worker: str) -> None:
        """Let a drained worker receive work again."""
        await self._ask(worker, draining=False)

    async def _ask(self, worker: str, *, draining: bool) -> None:
        unknown = UnknownWorkerError(f"no process has the id `{worker}`")
        if self._registry is None:
            if worker != str(os.getpid()):
                raise unknown
            await self._drain_control.set_draining(draining)
            return
        found: ProcessInfo | None = None
        for each in await self._registry.list():
            found = each if each.name == worker else found
        if found is None:
            raise unknown
        if "worker" not in found.roles:
            raise NotAWorkerError(f"`{worker}` runs no nodes: it is {', '.join(found.roles)}")
        await self._registry.request_drain(worker, draining)
