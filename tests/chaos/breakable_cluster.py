"""A cluster for fault injection: its own PostgreSQL and Redis, workers, schedulers and a load process."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rune.settings import Settings
from tests.chaos.effects import LEDGER
from tests.support.paths import ROOT
from tests.support.services.fleet import Fleet, Role, fleet
from tests.support.services.postgres import Server, new_server
from tests.support.services.redis_server import RedisServer

NODES = "tests.chaos.effects"
TIMEOUT_S = 90.0
READY = "the load is ready"


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)


class BreakableRedis(RedisServer):
    """A server with an append-only file that can be restored from a copy."""

    def __init__(self) -> None:
        super().__init__("--appendonly", "yes", "--appendfsync", "everysec")

    def wipe(self) -> None:
        """Restart the server without its files."""
        self.kill()
        self._empty()
        self.restart()

    @property
    def files(self) -> Path:
        """The folder of the append-only file."""
        return Path(self._folder) / "appendonlydir"

    def cut(self, seconds: float = 1.0) -> None:
        """Restart the server with its files of some time ago."""
        copy = Path(f"{self._folder}.copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.files, copy)
        pause(seconds)
        self.restore(copy)

    def restore(self, copy: Path) -> None:
        """Restart the server with a copy of its files."""
        self.kill()
        self._empty()
        shutil.move(copy, self.files)
        self.restart()

    def _empty(self) -> None:
        for each in Path(self._folder).iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()

    def command(self, *words: str) -> str:
        """Run `redis-cli` and return its output."""
        command = ["redis-cli", "-s", self.socket, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class BreakablePostgres:
    """A server that is shut down immediately and recovers from its log."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def down(self) -> None:
        """Shut the server down without a checkpoint."""
        process = self.server._process
        assert process is not None
        process.send_signal(signal.SIGQUIT)
        process.wait()

    def up(self) -> None:
        self.server.start()


class BreakableCluster:
    """The stores, the processes, the load, and the faults."""

    def __init__(self, folder: Path, database: BreakablePostgres, redis: BreakableRedis, made: Fleet) -> None:
        self.folder = folder
        self.database = database
        self.redis = redis
        self.fleet = made
        self._load: subprocess.Popen[bytes] | None = None
        self._load_log: IO[bytes] | None = None

    @property
    def ledger(self) -> str:
        path = self.folder / "ledger"
        return path.read_text() if path.exists() else ""

    def load(self, source: Path = ROOT, environment: Mapping[str, str] | None = None) -> None:
        """Start the load process, from the modules of a tree."""
        command = [
            "setpriv",
            "--pdeathsig=KILL",
            sys.executable,
            "-m",
            "tests.chaos.cluster_load",
            str(self.folder),
        ]
        self._load_log = (self.folder / "load.log").open("ab")
        before = (self.folder / "load.log").read_text().count(READY)
        self._load = subprocess.Popen(
            command,
            cwd=source,
            env={**self.fleet.environment, **(environment or {})},
            stdout=self._load_log,
            stderr=self._load_log,
        )
        log = self.folder / "load.log"
        self.wait_for(lambda: log.read_text().count(READY) > before, "the load is not ready")

    def drain(self, patience: float = 300.0) -> int:
        """Stop starting executions; return 0 when all have ended."""
        assert self._load is not None
        self._load.terminate()
        return self._load.wait(patience)

    def end_load(self) -> None:
        if self._load is not None and self._load.poll() is None:
            self._load.kill()
            self._load.wait()
        if self._load_log is not None:
            self._load_log.close()

    def ended(self) -> int:
        """Count the executions that have ended."""
        return sum(line.startswith("ended ") for line in (self.folder / "keys").read_text().splitlines())

    def wait_for(self, condition: object, message: str, patience: float = TIMEOUT_S) -> float:
        """Poll a condition until it holds; return the seconds it took."""
        assert callable(condition)
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > patience:
                raise AssertionError(message)
            pause(0.02)
        return time.monotonic() - began

    def wait_ready(self) -> None:
        """Wait until all processes are ready."""
        for each in self.fleet.processes:
            if each.alive:
                each.wait_ready()

    def kill(self, role: Role, number: int) -> None:
        """Kill a process that is ready and start another one; the next fault waits until that is ready."""
        self.wait_ready()
        running = self.fleet.of(role)
        running[number % len(running)].kill()
        self.fleet.start(role)


@contextmanager
def breakable_cluster(
    folder: Path, *, workers: int = 2, schedulers: int = 2, environment: Mapping[str, str] | None = None
) -> Iterator[BreakableCluster]:
    """Start the cluster; stop it at the end of the block."""
    server = new_server(track_commit_timestamp="on")
    redis = BreakableRedis()
    try:
        settings = Settings(
            home=str(folder), journal=server.create("chaos"), state=redis.url, queue=redis.url, nodes=(NODES,)
        )
        given = {
            "RUNE_NODES": NODES,
            LEDGER: str(folder / "ledger"),
            "RUNE_SLOTS": "16",
            **(environment or {}),
        }
        subprocess.run(
            [sys.executable, "-m", "rune", "migrate"], check=True, cwd=ROOT, stdout=subprocess.DEVNULL,
            env={**Fleet(folder, settings, given).environment},
        )  # fmt: skip
        with fleet(folder, settings, workers=workers, schedulers=schedulers, environment=given) as made:
            cluster = BreakableCluster(folder, BreakablePostgres(server), redis, made)
            try:
                yield cluster
            finally:
                cluster.end_load()
    finally:
        redis.stop()
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)
