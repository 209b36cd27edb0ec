"""A server with a port, a folder and a password of its own, that outlives whoever started it."""

from __future__ import annotations

import json
import os
import pwd
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
PATIENCE = 90.0
"""Seconds that a server has to answer, or to stop."""


class Trouble(Exception):
    """What has to be told to whoever called."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


class Memory:
    """What is known from one call to the next: ports, passwords, and which processes are ours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "services.json"
        self._known: dict[str, Any] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def password(self, name: str) -> str:
        return str(self._kept(f"{name}.password", secrets.token_hex(16)))

    def port(self, name: str) -> int:
        return int(self._kept(f"{name}.port", free_port()))

    def settle(self, *names: str) -> None:
        """Before a start: other ports than the last ones, where somebody else has taken those."""
        for name in names:
            if not is_free(self.port(name)):
                self._keep(f"{name}.port", free_port())

    def started(self, name: str, process: int) -> None:
        self._keep(f"{name}.process", [process, _birth(process)])

    def process(self, name: str) -> int | None:
        """The process of a server while it lives. A number alone would not do: numbers come back."""
        process, birth = self._known.get(f"{name}.process", (0, None))
        return process if birth is not None and _birth(process) == birth else None

    def _kept(self, name: str, new: str | int) -> Any:
        if name not in self._known:
            self._keep(name, new)
        return self._known[name]

    def _keep(self, name: str, value: Any) -> None:
        self._known[name] = value
        write_private(self._file, json.dumps(self._known, indent=1) + "\n")


def _birth(process: int) -> str | None:
    """When a process began, in the terms of this boot; None if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else f"{boot} {fields[19]}"


def family(process: int) -> dict[int, str]:
    """A process and all that it has begun, each with its birth. Not by session: some begin sessions of their own."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(stat.parent.name))
    found: dict[int, str] = {}
    open_ends = [process]
    while open_ends:
        each = open_ends.pop()
        birth = _birth(each)
        if birth is not None:
            found[each] = birth
            open_ends += parents.get(each, [])
    return found


def write_private(path: Path, text: str) -> None:
    """A file that only its owner reads, whole or not there."""
    passing = path.with_name(f".{path.name}.new")
    passing.unlink(missing_ok=True)
    with open(passing, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)
    passing.replace(path)


class Server:
    """One server. Root does not run it itself, but as the user that its package has made."""

    name = ""
    user = ""
    goodbye = signal.SIGTERM

    def __init__(self, memory: Memory, found: Mapping[str, Path]) -> None:
        self.memory = memory
        self.folder = memory.folder / self.name
        self.port = memory.port(self.name)
        self.password = memory.password(self.name)
        self.programs = found

    @property
    def url(self) -> str:
        raise NotImplementedError

    def prepare(self) -> None:
        """What has to be there before a start; may be called again."""

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith("PG")}

    def answers(self) -> bool:
        """Whether it is ready to do what it is there for."""
        raise NotImplementedError

    def complete(self) -> None:
        """What can only be made once it answers; may be called again."""

    def up(self) -> str:
        """Start it unless it runs; answers what was done."""
        runs = self.memory.process(self.name) is not None
        if not runs:
            self._begin()
        self.wait(self.answers)
        self.complete()
        return f"{'already runs' if runs else 'started'} on port {self.port}"

    def _begin(self) -> None:
        self.memory.settle(self.name)
        self.port = self.memory.port(self.name)
        self.folder.mkdir(exist_ok=True)
        self._hand_over(self.folder)
        self.prepare()
        self.start(self.name, self.command())

    def start(self, name: str, command: Sequence[str]) -> None:
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self.identity(),
            )
        self.memory.started(name, process.pid)

    def run(self, *command: str, **environment: str) -> str:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            command,
            cwd=self.folder,
            env={**self.environment(), **environment},
            capture_output=True,
            text=True,
            check=False,
            **self.identity(),
        )
        if done.returncode != 0:
            raise Trouble(f"{self.name}: {Path(command[0]).name} failed: {done.stderr.strip()[-1000:]}")
        return done.stdout.strip()

    def wait(self, until: Callable[[], bool], name: str = "") -> None:
        name = name or self.name
        ends = time.monotonic() + PATIENCE
        while not until():
            if self.memory.process(name) is None:
                raise Trouble(f"{name} has ended; the last it said:\n{self._last_words()}")
            if time.monotonic() > ends:
                raise Trouble(f"{name} does not answer; the last it said:\n{self._last_words()}")
            time.sleep(0.05)

    def down(self) -> str:
        """Stop it if it runs; answers what was done."""
        return "stopped" if self.stop(self.name) else "did not run"

    def stop(self, name: str) -> bool:
        process = self.memory.process(name)
        if process is None:
            return False
        ours = family(process)
        with suppress(ProcessLookupError):
            os.kill(process, self.goodbye)
        ends = time.monotonic() + PATIENCE
        while left := [each for each, birth in ours.items() if _birth(each) == birth]:
            if time.monotonic() > ends:
                for each in left:
                    with suppress(ProcessLookupError):
                        os.kill(each, signal.SIGKILL)
            time.sleep(0.05)
        return True

    def status(self) -> str:
        if self.memory.process(self.name) is None:
            return "does not run"
        return f"runs on port {self.port}" if self.answers() else "runs but does not answer"

    def identity(self) -> dict[str, Any]:
        owner = self._owner()
        if owner is None:
            return {}
        return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}

    def _owner(self) -> pwd.struct_passwd | None:
        if os.getuid() != 0 or not self.user:
            return None
        try:
            return pwd.getpwnam(self.user)
        except KeyError:
            raise Trouble(f"{self.name}: root does not run it, and there is no user `{self.user}`") from None

    def _hand_over(self, folder: Path) -> None:
        owner = self._owner()
        if owner is None:
            folder.chmod(0o700)
            return
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        folder.chmod(0o700)
        tried = subprocess.run(["test", "-w", str(folder)], check=False, **self.identity())
        if tried.returncode != 0:
            raise Trouble(
                f"{self.name} runs as the user `{self.user}`, who cannot get to {folder}: let others pass through"
                " the folders above it (chmod o+x), or name another place with --folder"
            )

    def _last_words(self) -> str:
        log = self.folder / "log"
        return log.read_text(errors="replace")[-1500:].strip() if log.exists() else "nothing"

    def write(self, name: str, text: str) -> Path:
        """A file of the server's own, for nobody else to read."""
        path = self.folder / name
        write_private(path, text)
        owner = self._owner()
        if owner is not None:
            os.chown(path, owner.pw_uid, owner.pw_gid)
        return path
