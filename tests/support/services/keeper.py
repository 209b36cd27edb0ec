"""What one test run starts once and leaves nowhere: the shared servers, its temporary files, its processes.

A keeper process belongs to the process that began the run. It starts each shared server when a test process first
asks for it. When the run ends, also by `kill -9`, it ends every process that the run has left, stops the servers
and removes the files. Processes of the run are recognised by an environment variable that all of them inherit.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

RUN = "TEST_RUN_FOLDER"
MEMORY = Path("/dev/shm")
MIN_FREE_BYTES = 1 << 30
TIMEOUT_S = 180.0


class SharedServer(Protocol):
    """A server that the test processes of a run share."""

    def place(self) -> dict[str, Any]:
        """Return what a test process must know in order to use it."""

    def stop(self) -> None: ...


def begin() -> bool:
    """Begin a run unless this process belongs to one; return whether it did."""
    if RUN in os.environ:
        return False
    folder = Path(tempfile.mkdtemp(prefix="rune-tests-"))
    folder.chmod(0o711)  # PostgreSQL runs as another user
    if memory := _roomy_memory():
        (memory / folder.name).mkdir(mode=0o711)
    os.environ[RUN] = os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None
    _keeper(folder)
    atexit.register(_end)
    return True


@functools.cache
def _keeper(folder: Path) -> subprocess.Popen[str]:
    keeper = subprocess.Popen(
        [sys.executable, "-m", "tests.support.services.keeper", str(folder), str(os.getpid())],
        cwd=Path(__file__).resolve().parents[3], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    assert keeper.stdout is not None
    keeper.stdout.readline()  # it listens
    return keeper


def _end() -> None:
    """End the run that this process began, and wait until nothing of it is left."""
    keeper = _keeper(Path(os.environ.pop(RUN)))
    keeper.terminate()
    keeper.communicate()


def shared(service: str) -> dict[str, Any]:
    """Return where a shared server is; the first call of a run starts it. `service`: a module of this package."""
    begin()
    with socket.socket(socket.AF_UNIX) as there:
        there.settimeout(TIMEOUT_S)
        there.connect(f"{os.environ[RUN]}/keeper")
        there.sendall(f"{service}\n".encode())
        with there.makefile() as answer:
            found: dict[str, Any] = json.loads(answer.readline())
    if "error" in found:
        raise RuntimeError(f"{service} does not start: {found['error']}")
    return found


def temporary_folder() -> str:
    """Return the folder of the temporary files of the run's tests."""
    return f"{os.environ[RUN]}/t"


@functools.cache
def memory_folder() -> Path | None:
    """Return the folder of the run in memory if there is space: faster than a disk and equally safe in a process
    crash."""
    begin()
    found = MEMORY / Path(os.environ[RUN]).name
    return found if found.is_dir() and _roomy_memory() else None


def _roomy_memory() -> Path | None:
    return MEMORY if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MIN_FREE_BYTES else None


_spawner = ThreadPoolExecutor(1)
"""Linux sends the signal of --pdeathsig when the thread that started the child ends, so this thread stays."""


def spawn(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process with `setpriv --pdeathsig`."""
    return _spawner.submit(lambda: subprocess.Popen(command, **options)).result()


def spawn_bound(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that is killed when this one ends, however it ends."""
    return spawn(["setpriv", "--pdeathsig=KILL", *command], **options)


class Keeper:
    """The process that owns the shared servers of a run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: dict[str, SharedServer] = {}

    def serve(self, owner: int) -> None:
        """Answer requests until the owner of the run ends or SIGTERM arrives."""
        ending, signalled = os.pipe()
        signal.signal(signal.SIGTERM, lambda *_: os.write(signalled, b"."))
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._folder / "keeper"))
            listener.listen(64)
            print("listening", flush=True)  # noqa: T201
            with contextlib.suppress(ProcessLookupError):
                alive = os.pidfd_open(owner)
                asked = listener.fileno()
                while select.select([asked, alive, ending], [], [])[0] == [asked]:
                    self._answer(listener.accept()[0])

    def _answer(self, asked: socket.socket) -> None:
        with asked, contextlib.suppress(OSError), asked.makefile("rw") as stream:
            name = stream.readline().strip()
            try:
                if name not in self._servers:
                    module = importlib.import_module(f"tests.support.services.{name}")
                    self._servers[name] = module.start_shared()
                stream.write(json.dumps(self._servers[name].place()) + "\n")
            except Exception as error:
                stream.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")

    def clean(self) -> None:
        """End what is left of the run, and remove its files."""
        while left := list(processes_of(str(self._folder))):
            for each in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
        for server in self._servers.values():
            server.stop()
        for folder in (self._folder, MEMORY / self._folder.name):
            for line in Path("/proc/mounts").read_text().splitlines():
                if (mount := line.split()[1]).startswith(f"{folder}/"):
                    subprocess.run(["umount", "--lazy", mount], check=False)
            shutil.rmtree(folder, ignore_errors=True)


def processes_of(run: str) -> Iterator[int]:
    """Yield the processes of a run, without this one and the shared servers."""
    mark = f"{RUN}={run}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)


def main() -> None:
    folder, owner = Path(sys.argv[1]), int(sys.argv[2])
    keeper = Keeper(folder)
    memory_folder()
    # The shared servers are stopped one by one, so they are not marked as processes that were left behind.
    del os.environ[RUN]
    try:
        keeper.serve(owner)
    finally:
        keeper.clean()


if __name__ == "__main__":
    main()
