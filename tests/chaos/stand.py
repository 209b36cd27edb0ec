"""A cluster that is there to be broken: its own PostgreSQL, its own Redis, workers, schedulers and a load."""

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
PATIENCE = 90.0


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)


class BreakableRedis(RedisServer):
    """A server with an append-only file, of which a copy can be put back."""

    def __init__(self) -> None:
        super().__init__("--appendonly", "yes", "--appendfsync", "everysec")

    def wipe(self) -> None:
        """It comes back without its folder."""
        self.kill()
        self._empty()
        self.restart()

    @property
    def files(self) -> Path:
        """Where it writes what happens."""
        return Path(self._folder) / "appendonlydir"

    def cut(self, seconds: float = 1.0) -> None:
        """It comes back as it was a while ago."""
        copy = Path(f"{self._folder}.copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.files, copy)
        pause(seconds)
        self.put_back(copy)

    def put_back(self, copy: Path) -> None:
        """It comes back as it was when this copy of its files was made."""
        self.kill()
        self._empty()
        shutil.move(copy, self.files)
        self.restart()

    def _empty(self) -> None:
        for each in Path(self._folder).iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()

    def ask(self, *words: str) -> str:
        """What `redis-cli` prints."""
        command = ["redis-cli", "-s", self.socket, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class BreakablePostgres:
    """A server that goes down at once and comes back by replaying its log."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def down(self) -> None:
        """Immediate shutdown."""
        process = self.server._process
        assert process is not None
        process.send_signal(signal.SIGQUIT)
        process.wait()

    def up(self) -> None:
        self.server.start()


class Stand:
    """Everything, and the ways in which it breaks."""

    def __init__(self, folder: Path, database: BreakablePostgres, redis: BreakableRedis, made: Fleet) -> None:
        self.folder = folder
        self.database = database
        self.redis = redis
        self.fleet = made
        self._load: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None

    @property
    def ledger(self) -> str:
        path = self.folder / "ledger"
        return path.read_text() if path.exists() else ""

    def load(self, **environment: str) -> None:
        """Begin to load it."""
        command = [
            "setpriv",
            "--pdeathsig=KILL",
            sys.executable,
            "-m",
            "tests.chaos.cluster_load",
            str(self.folder),
        ]
        self._said = (self.folder / "load.log").open("ab")
        self._load = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**self.fleet.environment, **environment},
            stdout=self._said,
            stderr=self._said,
        )
        self.wait_for(
            lambda: "the load is ready" in (self.folder / "load.log").read_text(), "the load is not ready"
        )

    def drain(self, patience: float = 300.0) -> int:
        """Start nothing more; 0 when all have ended."""
        assert self._load is not None
        self._load.terminate()
        return self._load.wait(patience)

    def end_load(self) -> None:
        if self._load is not None and self._load.poll() is None:
            self._load.kill()
            self._load.wait()
        if self._said is not None:
            self._said.close()

    def ended(self) -> int:
        """How many executions the load has seen ending."""
        return sum(line.startswith("ended ") for line in (self.folder / "keys").read_text().splitlines())

    def wait_for(self, fact: object, complaint: str, patience: float = PATIENCE) -> float:
        """Until something holds; how long that took."""
        assert callable(fact)
        began = time.monotonic()
        while not fact():
            if time.monotonic() - began > patience:
                raise AssertionError(complaint)
            pause(0.02)
        return time.monotonic() - began

    def complete(self) -> None:
        """Until everybody takes part."""
        for each in self.fleet.processes:
            if each.alive:
                each.wait_ready()

    def kill(self, role: Role, number: int) -> None:
        """kill -9 of one that takes part, and another takes its place; whoever comes next waits until it is ready."""
        self.complete()
        there = self.fleet.of(role)
        there[number % len(there)].kill()
        self.fleet.start(role)


@contextmanager
def stand(
    folder: Path, *, workers: int = 2, schedulers: int = 2, environment: Mapping[str, str] | None = None
) -> Iterator[Stand]:
    """While the block runs."""
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
            broken = Stand(folder, BreakablePostgres(server), redis, made)
            try:
                yield broken
            finally:
                broken.end_load()
    finally:
        redis.stop()
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)
