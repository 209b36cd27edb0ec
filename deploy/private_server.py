"""Start and stop servers with private ports, folders and passwords that keep running after this process exits."""

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
TIMEOUT_S = 90.0
"""How long a server may take to respond, or to stop."""


class ServiceError(Exception):
    """An error with a message for the caller of the script."""


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


class ServiceRecords:
    """Ports, passwords and process ids, stored between calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "services.json"
        self._values: dict[str, Any] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def password(self, name: str) -> str:
        return str(self._get_or_set(f"{name}.password", secrets.token_hex(16)))

    def port(self, name: str) -> int:
        return int(self._get_or_set(f"{name}.port", free_port()))

    def replace_taken_ports(self, *names: str) -> None:
        """Choose new ports for those that another process has taken since the last start."""
        for name in names:
            if not is_free(self.port(name)):
                self._set(f"{name}.port", free_port())

    def started(self, name: str, process: int) -> None:
        self._set(f"{name}.process", [process, _start_time(process)])

    def process(self, name: str) -> int | None:
        """Return the pid of a running server. Its start time is compared too, because pids are reused."""
        process, start_time = self._values.get(f"{name}.process", (0, None))
        return process if start_time is not None and _start_time(process) == start_time else None

    def _get_or_set(self, name: str, new: str | int) -> Any:
        if name not in self._values:
            self._set(name, new)
        return self._values[name]

    def _set(self, name: str, value: Any) -> None:
        self._values[name] = value
        write_private(self._file, json.dumps(self._values, indent=1) + "\n")


def _start_time(process: int) -> str | None:
    """Return boot id and start time of a process; None if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else f"{boot} {fields[19]}"


def process_tree(process: int) -> dict[int, str]:
    """Return a process and its descendants with their start times. Sessions do not suffice: some start their own."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(stat.parent.name))
    found: dict[int, str] = {}
    pending = [process]
    while pending:
        each = pending.pop()
        start_time = _start_time(each)
        if start_time is not None:
            found[each] = start_time
            pending += parents.get(each, [])
    return found


def write_private(path: Path, text: str) -> None:
    """Write a file atomically, readable by its owner only."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    with open(temporary, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)
    temporary.replace(path)


class Server:
    """One server. If called by root, it runs as the user of its package."""

    name = ""
    user = ""
    stop_signal = signal.SIGTERM

    def __init__(self, records: ServiceRecords, found: Mapping[str, Path]) -> None:
        self.records = records
        self.folder = records.folder / self.name
        self.port = records.port(self.name)
        self.password = records.password(self.name)
        self.programs = found

    @property
    def url(self) -> str:
        raise NotImplementedError

    def prepare(self) -> None:
        """Prepare the folder before a start; may be repeated."""

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if not name.startswith("PG")}

    def is_ready(self) -> bool:
        """Return whether the server is ready."""
        raise NotImplementedError

    def complete(self) -> None:
        """Finish the setup once the server is ready; may be repeated."""

    def up(self) -> str:
        """Start the server unless it runs; return what was done."""
        runs = self.records.process(self.name) is not None
        if not runs:
            self._start()
        self.wait(self.is_ready)
        self.complete()
        return f"{'already runs' if runs else 'started'} on port {self.port}"

    def _start(self) -> None:
        self.records.replace_taken_ports(self.name)
        self.port = self.records.port(self.name)
        self.folder.mkdir(exist_ok=True)
        self._give_to_user(self.folder)
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
        self.records.started(name, process.pid)

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
            raise ServiceError(f"{self.name}: {Path(command[0]).name} failed: {done.stderr.strip()[-1000:]}")
        return done.stdout.strip()

    def wait(self, until: Callable[[], bool], name: str = "") -> None:
        name = name or self.name
        ends = time.monotonic() + TIMEOUT_S
        while not until():
            if self.records.process(name) is None:
                raise ServiceError(f"{name} has ended; the end of its log:\n{self._log_tail()}")
            if time.monotonic() > ends:
                raise ServiceError(f"{name} does not respond; the end of its log:\n{self._log_tail()}")
            time.sleep(0.05)

    def down(self) -> str:
        """Stop the server if it runs; return what was done."""
        return "stopped" if self.stop(self.name) else "did not run"

    def stop(self, name: str) -> bool:
        process = self.records.process(name)
        if process is None:
            return False
        processes = process_tree(process)
        with suppress(ProcessLookupError):
            os.kill(process, self.stop_signal)
        ends = time.monotonic() + TIMEOUT_S
        while left := [each for each, start_time in processes.items() if _start_time(each) == start_time]:
            if time.monotonic() > ends:
                for each in left:
                    with suppress(ProcessLookupError):
                        os.kill(each, signal.SIGKILL)
            time.sleep(0.05)
        return True

    def status(self) -> str:
        if self.records.process(self.name) is None:
            return "does not run"
        return f"runs on port {self.port}" if self.is_ready() else "runs but does not respond"

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
            raise ServiceError(
                f"{self.name}: root cannot run it, and there is no user `{self.user}`"
            ) from None

    def _give_to_user(self, folder: Path) -> None:
        owner = self._owner()
        if owner is None:
            folder.chmod(0o700)
            return
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        folder.chmod(0o700)
        tried = subprocess.run(["test", "-w", str(folder)], check=False, **self.identity())
        if tried.returncode != 0:
            raise ServiceError(
                f"{self.name} runs as the user `{self.user}`, which cannot access {folder}: make the folders"
                " above it searchable (chmod o+x), or choose another folder with --folder"
            )

    def _log_tail(self) -> str:
        log = self.folder / "log"
        return log.read_text(errors="replace")[-1500:].strip() if log.exists() else "nothing"

    def write(self, name: str, text: str) -> Path:
        """Write a file that only the user of the server can read."""
        path = self.folder / name
        write_private(path, text)
        owner = self._owner()
        if owner is not None:
            os.chown(path, owner.pw_uid, owner.pw_gid)
        return path
