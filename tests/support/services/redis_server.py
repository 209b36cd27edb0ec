"""A private Redis server per test process, stopped with it.

The processes of a run do not share one: it starts at once, and its functions, channels and `FLUSHALL` concern all of
its databases.
"""

from __future__ import annotations

import atexit
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

from tests.support.services.keeper import memory_folder, spawn_bound

TIMEOUT_S = 60.0


class RedisServer:
    """A redis-server on a Unix socket, without persistence and eviction."""

    def __init__(self, *options: str) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise RuntimeError("redis-server is not installed")
        self._folder = tempfile.mkdtemp(prefix="rune-redis-", dir=memory_folder())
        self.socket = str(Path(self._folder) / "redis.sock")
        self._command = [
            program,
            *("--port", "0"),
            *("--unixsocket", self.socket),
            *("--dir", self._folder),
            *("--save", ""),
            *("--appendonly", "no"),
            *("--maxmemory-policy", "noeviction"),
            *options,
        ]
        self._process = self._start()

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def _start(self) -> subprocess.Popen[bytes]:
        process = spawn_bound(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until:
            try:
                with socket.socket(socket.AF_UNIX) as there:
                    there.connect(self.socket)
                    there.sendall(b"PING\r\n")
                    if there.recv(7).startswith(b"+PONG"):
                        return process
            except OSError:
                select.select([], [], [], 0.01)
        process.kill()
        raise RuntimeError("redis-server does not answer")

    def kill(self) -> None:
        """Send SIGKILL to the server."""
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """Stop the process with SIGSTOP: connections stay open and no command is answered."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Kill and start the server; its data is lost."""
        self.kill()
        Path(self.socket).unlink(missing_ok=True)
        self._process = self._start()

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


@cache
def redis_server() -> RedisServer:
    """Return the server that the tests of this process share."""
    server = RedisServer()
    atexit.register(server.stop)
    return server
