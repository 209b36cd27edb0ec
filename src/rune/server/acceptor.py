"""Accepts connections in small batches, and knows which clients have disconnected already.

An event loop accepts all connections that wait, up to thousands, in one turn, and then begins with a request of each.
Everything else waits for that turn. Here a turn accepts a few. A client that has closed its connection before its
request begins usually waits for no response, so that few such requests per second are served: a client may close only
its sending side, or send a change without waiting for the response.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Any

ACCEPTED_PER_TURN = 32
ABANDONED_PER_S = 100
"""How many requests whose clients have disconnected before they begin are served per second."""

PAUSE_S = 1.0
"""How long nothing is accepted after the process could open no more files."""

NO_FILES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
CLOSED_STATES = frozenset({7, 8, 9, 11})
"""CLOSE, CLOSE_WAIT, LAST_ACK and CLOSING of Linux: the client has closed or reset the connection."""

_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)

log = logging.getLogger("rune.server")

Address = tuple[str, int]


def has_disconnected(connection: Any) -> bool:
    """Return whether the client has closed its side of a connection, or reset it, even if what it sent is unread. On
    other systems than Linux this is not known."""
    if _TCP_INFO is None:
        return False
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0] in CLOSED_STATES
    except OSError:
        return False


class AbandonedRequests:
    """Counts the requests that are served although their clients have disconnected: a number per second."""

    def __init__(self, per_s: int, clock: Callable[[], float]) -> None:
        self._per_s = per_s
        self._clock = clock
        self._left = float(per_s)
        self._at = clock()

    def take(self, number: int = 1) -> bool:
        """Return whether one more may be served; with `number` 0, whether one could be."""
        now = self._clock()
        self._left = min(float(self._per_s), self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1:
            return False
        self._left -= number
        return True


class Acceptor:
    """Accepts the connections of one listening socket."""

    def __init__(
        self,
        listening: socket.socket,
        protocol: Callable[[Address], asyncio.Protocol],
        abandoned: AbandonedRequests,
    ) -> None:
        self._listening = listening
        self._protocol = protocol
        self._abandoned = abandoned
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[Any]] = set()
        self._resuming: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Accept connections until `close`."""
        self._loop.add_reader(self._listening, self._accept_batch)

    def close(self) -> None:
        """Accept no more connections."""
        self._loop.remove_reader(self._listening)
        if self._resuming is not None:
            self._resuming.cancel()

    def _accept_batch(self) -> None:
        for _ in range(ACCEPTED_PER_TURN):
            try:
                connection, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            self._open(connection, (str(address[0]), int(address[1])))

    def _pause(self, error: OSError) -> None:
        """Accept nothing for a moment: without a free file the socket stays ready, and the loop would be busy."""
        if error.errno not in NO_FILES:
            raise error
        log.error("no connection can be accepted for %g s: %s", PAUSE_S, error.strerror)
        self._loop.remove_reader(self._listening)
        self._resuming = self._loop.call_later(PAUSE_S, self.start)

    def _open(self, connection: socket.socket, address: Address) -> None:
        if has_disconnected(connection) and not self._abandoned.take(0):
            connection.close()
            return
        connection.setblocking(False)
        opening = self._loop.create_task(self._connect(connection, address))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    async def _connect(self, connection: socket.socket, address: Address) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: self._protocol(address), connection)
        except OSError:
            connection.close()  # the client disconnected meanwhile
