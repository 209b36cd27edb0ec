"""How long the event loop of a server is busy without a break, measured in CPU time of its thread, and its memory.

`python -m tests.support.loop_meter HOME` serves the API on a free port in a process of its own. It writes its URL, then
for each line that it reads what was measured since the last one. CPU time does not depend on what else runs.
"""

from __future__ import annotations

import asyncio
import json
import selectors
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from rune.nodes.registry import import_modules
from tests.support.api_server import running_server
from tests.support.paths import ROOT

SAMPLE_S = 0.05
BUSY_S = 0.15
"""A turn that is at least this long has its stack sampled."""


class _Selector(selectors.DefaultSelector):
    """Measures the time between two calls of `select`: one turn of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = 0.0
        self.stack = ""
        self.began = time.thread_time()
        self.since = time.monotonic()
        self.sampled = ""

    def select(self, timeout: float | None = None) -> Any:
        took = time.thread_time() - self.began
        if took > self.longest:
            self.longest, self.stack = took, self.sampled
        self.since = 0.0
        found = super().select(timeout)
        self.began, self.since, self.sampled = time.thread_time(), time.monotonic(), ""
        return found

    def sample(self, thread: int) -> None:
        """Keep the stack of a long turn. Runs in another thread until the process ends."""
        pause = threading.Event()
        while not pause.wait(SAMPLE_S):
            if self.since and time.monotonic() - self.since > BUSY_S and not self.sampled:
                frame = sys._current_frames().get(thread)
                self.sampled = "".join(traceback.format_stack(frame)[-6:]) if frame is not None else ""


async def _serve(home: Path, selector: _Selector) -> None:
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str] = asyncio.Queue()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, "")

    threading.Thread(target=selector.sample, args=(threading.get_ident(),), daemon=True).start()
    import_modules()  # as `rune up` does
    async with running_server(home) as server:
        _write({"url": server.url})
        threading.Thread(target=read, daemon=True).start()
        while await lines.get():
            found = {"longest_s": selector.longest, "stack": selector.stack, "peak_mb": _peak_mb()}
            selector.longest, selector.stack = 0.0, ""
            _forget_peak()
            _write(found)


def _write(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _forget_peak() -> None:
    """Let the peak of the memory begin anew."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_mb() -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


class Measured(NamedTuple):
    """The longest turn of the loop in seconds of CPU, where it was, and the most memory."""

    longest_s: float
    stack: str
    peak_mb: int


class MeteredServer:
    """A server in a process of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __enter__(self) -> MeteredServer:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.loop_meter", str(self.home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.url = str(self._read()["url"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self.process.wait()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the server has ended"
        found: dict[str, Any] = json.loads(line)
        return found

    def take(self) -> Measured:
        """Return what was measured since the last call."""
        assert self.process.stdin is not None
        self.process.stdin.write("take\n")
        self.process.stdin.flush()
        return Measured(**self._read())

    def cpu_s(self) -> float:
        """Return the CPU time that the process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    _selector = _Selector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(_selector)) as _runner:
        _runner.run(_serve(Path(sys.argv[1]), _selector))
