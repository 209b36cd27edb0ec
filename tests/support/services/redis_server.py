"""Real stores for tests: a server of its own per test process, in a folder of its own, gone when the process ends."""

from __future__ import annotations

import atexit
import select
import shutil
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

PATIENCE = 60.0


class RedisServer:
    """A redis-server behind a socket file: nothing is written to disk and nothing is ever evicted."""

    def __init__(self, *options: str) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise RuntimeError("redis-server is not installed")
        self._folder = tempfile.mkdtemp(prefix="rune-redis-")
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
        self._process = self._started()

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE
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
        """As if its machine had lost power."""
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Another run of the server; what it kept in memory is gone."""
        self.kill()
        Path(self.socket).unlink(missing_ok=True)
        self._process = self._started()

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


@cache
def redis_server() -> RedisServer:
    """The server that the tests of this process share."""
    server = RedisServer()
    atexit.register(server.stop)
    return server
