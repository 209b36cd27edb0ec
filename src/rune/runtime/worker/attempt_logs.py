"""The logs of the attempts that a worker runs. They are stored in the blob store, beside the outputs of their nodes."""

from __future__ import annotations

import asyncio
import logging

from rune.core.execution.token import Path, Token, token_name
from rune.core.plan.model import Plan
from rune.nodes.attempt_log import AttemptLog, LogLine, decode_log
from rune.ports.journal import BlobStore
from rune.ports.processes import LoggedLine
from rune.runtime.live import RunningNodes

log = logging.getLogger("rune.attempt_logs")

FLUSH_INTERVAL_S = 1.0
"""How often the log of a running attempt is stored, so that it survives a crash of the worker."""


def log_key(execution: str, plan: Plan, node: int, path: Path, attempt: int) -> str:
    """Return the key under which the log of an attempt is stored."""
    return f"{execution}/{token_name(node, path, plan.ids)}/log/{attempt}"


class AttemptLogs:
    """Opens a log for each run of a node type that may log, and stores those that have lines."""

    def __init__(self, blob: BlobStore, running: RunningNodes) -> None:
        self._blob = blob
        self._running = running
        self._open: dict[str, AttemptLog] = {}
        self._storing: dict[str, asyncio.Lock] = {}
        self.logged: set[tuple[str, int, Path]] = set()
        """Runs that logged and whose fact is not recorded yet."""

    def open(self, execution: str, plan: Plan, token: Token, *, again: bool) -> AttemptLog:
        """Open the log of a run. `again`: an earlier run of the same attempt may have stored one."""

        def on_line(line: LogLine) -> None:
            logged_line = LoggedLine(token.node, token.path, token.attempt, line.at, line.level, line.message)
            self._running.logged(execution, logged_line)

        attempt_log = AttemptLog(on_line, continues=again)
        self._open[log_key(execution, plan, token.node, token.path, token.attempt)] = attempt_log
        return attempt_log

    async def close(self, execution: str, plan: Plan, token: Token, written: AttemptLog) -> None:
        """Store the log of a run that has ended."""
        key = log_key(execution, plan, token.node, token.path, token.attempt)
        self._open.pop(key, None)
        if written:
            await self._store(key, written)
            self._storing.pop(key, None)

    def was_logged(self, execution: str, token: Token) -> bool:
        """Return whether the last run of this token logged, once."""
        key = (execution, token.node, token.path)
        if key not in self.logged:
            return False
        self.logged.discard(key)
        return True

    async def run(self) -> None:
        """Store the logs of running attempts until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_INTERVAL_S)
            for key, attempt_log in list(self._open.items()):
                if attempt_log.unsaved and key in self._open:
                    await self._store(key, attempt_log)

    async def _store(self, key: str, attempt_log: AttemptLog) -> None:
        # Two writes at the same time could end in the wrong order.
        async with self._storing.setdefault(key, asyncio.Lock()):
            try:
                if attempt_log.continues:
                    earlier = await self._blob.get(key)
                    if earlier is not None:
                        attempt_log.prepend(decode_log(earlier))
                    attempt_log.continues = False
                await self._blob.put(key, attempt_log.encoded())
            except Exception as error:
                # Any exception: a log must neither fail its node nor end the worker.
                log.warning("the log of %s is not stored: %s", key, error)
