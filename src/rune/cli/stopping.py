"""Stopping: a first signal asks, a second one does not."""

from __future__ import annotations

import asyncio
import signal
import threading
from types import TracebackType

from rune.cli.problems import INTERRUPTED, TERMINATED

CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}


class Stop:
    """While the block runs, Ctrl-C and SIGTERM are heard as a wish to stop."""

    def __init__(self) -> None:
        self.code = 0
        self._loop = asyncio.get_running_loop()
        self.asked: asyncio.Future[None] = self._loop.create_future()

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():  # no other thread hears signals
            for each in CODES:
                self._loop.add_signal_handler(each, self._ask, each)
        return self

    def _ask(self, heard: signal.Signals) -> None:
        self.code = self.code or CODES[heard]
        if not self.asked.done():
            self.asked.set_result(None)

    def let_go(self) -> None:
        """From here on a signal ends the process."""
        for each in CODES:
            self._loop.remove_signal_handler(each)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.let_go()
