"""PostgreSQL: one server per test run, on which each test has its own databases, and private ones to stop or kill.

fsync is on, as in production; other settings are reduced for speed.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import hashlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.services.keeper import memory_folder, shared, spawn

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "64MB",
    "max_connections": "400",
    "dynamic_shared_memory_type": "mmap",  # in its folder, which is removed in any case
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "96MB",
    "autovacuum_naptime": "60s",
    "log_checkpoints": "off",
    "timezone": "UTC",
}
USER = "rune"
TEMPLATE = "migrated"


def programs() -> Path:
    """Return the folder of the newest installed server programs."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: float(each.parent.name))
    if not folders:
        raise RuntimeError("PostgreSQL is not installed (apt-get install postgresql)")
    return folders[-1]


def free_port() -> int:
    """Return a free port below the ephemeral range, so that it is still free when its server binds it."""
    while True:
        port = 10_000 + secrets.randbelow(22_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def _as_server(*command: str) -> list[str]:
    """Run a command as an unprivileged user, since root may not run a server; it ends with this process."""
    unprivileged: list[str] = []
    if os.getuid() == 0:
        owner = pwd.getpwnam("postgres")
        unprivileged = [f"--reuid={owner.pw_uid}", f"--regid={owner.pw_gid}", "--clear-groups"]
    return ["setpriv", *unprivileged, "--pdeathsig=INT", *command]


def _is_alive(process: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Server:
    """One server. `start` after `kill` recovers, as after a power failure."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = port or free_port()
        self._bin = programs()
        self._process: subprocess.Popen[bytes] | None = None

    def make(self, settings: Mapping[str, str]) -> None:
        """Initialise an empty database cluster."""
        if os.getuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(self.folder, owner.pw_uid, owner.pw_gid)
        self._run(
            *_as_server(
                str(self._bin / "initdb"), "-D", str(self.data), "-U", USER, "-A", "trust", "-E", "UTF8",
                "--locale=C.UTF-8", "--no-sync",
            )
        )  # fmt: skip
        lines = [f"{name} = '{value}'" for name, value in {**SETTINGS, **settings}.items()]
        lines += [f"port = {self.port}", f"unix_socket_directories = '{self.folder}'"]
        with (self.data / "postgresql.conf").open("a") as file:
            file.write("\n".join(lines) + "\n")

    def start(self) -> None:
        """Start the server and wait until it responds."""
        with (self.folder / "log").open("ab") as log:
            command = _as_server(str(self._bin / "postgres"), "-D", str(self.data))
            self._process = spawn(command, stdout=log, stderr=log)
        while self._ready() != 0:
            if self._process.poll() is not None:
                raise RuntimeError((self.folder / "log").read_text()[-2000:])

    def _ready(self) -> int:
        command = [
            str(self._bin / "pg_isready"),
            "-q",
            "-h",
            str(self.folder),
            "-p",
            str(self.port),
            "-t",
            "1",
        ]
        return subprocess.run(command, check=False).returncode

    def kill(self) -> None:
        """Send SIGKILL to the server and all its processes."""
        assert self._process is not None
        main = self._process.pid
        os.kill(main, signal.SIGSTOP)  # so that it starts no further processes
        children = [int(each) for each in Path(f"/proc/{main}/task/{main}/children").read_text().split()]
        for each in [main, *children]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self._process.wait()
        self._process = None
        while any(
            _is_alive(each) for each in children
        ):  # their shared memory must be free for the next start
            pass
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def freeze(self) -> None:
        """Stop the main process with SIGSTOP: new connections are accepted and nothing is answered on them."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Stop the server cleanly."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()
            self._process = None

    def dsn(self, database: str = "postgres") -> str:
        """Return the DSN of a database."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def sql(self, text: str, database: str = "postgres") -> str:
        """Run SQL with psql and return its output."""
        return self._run(
            "psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-h", str(self.folder), "-p", str(self.port),
            "-U", USER, "-d", database, "-c", text,
        )  # fmt: skip

    def create(self, database: str, template: str = "template1") -> str:
        """Create a database and return its DSN."""
        self.sql(f'CREATE DATABASE "{database}" TEMPLATE "{template}"')
        return self.dsn(database)

    def copy(self, database: str, to: str, template: str) -> None:
        """Copy what is committed now into a new database."""
        self.create(to, template)
        common = ["-h", str(self.folder), "-p", str(self.port), "-U", USER]
        dump = subprocess.run(
            [str(self._bin / "pg_dump"), *common, "--data-only", "-T", "rune_migration", database],
            check=True,
            capture_output=True,
        )
        subprocess.run(["psql", "-Xq", *common, "-d", to], input=dump.stdout, check=True, capture_output=True)

    def _run(self, *command: str) -> str:
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/")
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]}: {done.stderr.strip()}")
        return done.stdout.strip()


def new_server(base: Path | None = None, **settings: str) -> Server:
    """Start a server that the test may stop or kill. By default its files are in memory, which is faster and loses no
    more in a process crash than a disk."""
    folder = Path(tempfile.mkdtemp(prefix="rune-pg-", dir=base or memory_folder()))
    server = Server(folder)

    def end() -> None:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    server.make(settings)
    server.start()
    return server


class SharedPostgres:
    """The server of a run, with a migrated database that others are copied from."""

    def __init__(self) -> None:
        from rune.adapters.postgres.schema import migrate

        self._server = new_server()
        asyncio.run(migrate(self._server.create(TEMPLATE)))

    def place(self) -> dict[str, Any]:
        return {"folder": str(self._server.folder), "port": self._server.port}

    def stop(self) -> None:
        self._server.stop()


start_shared = SharedPostgres


@functools.cache
def server() -> Server:
    """Return the server that the tests of a run share. They must not stop it."""
    found = shared("postgres")
    return Server(Path(found["folder"]), found["port"])


def database_of(folder: Path) -> str:
    """Return the name of a folder's database."""
    return f"t{hashlib.sha256(str(folder).encode()).hexdigest()[:20]}"
